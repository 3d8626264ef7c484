"""Rollouts of which every one begins with new episodes: each env is a member of a population, which
plays on its own from the beginning (``Needs.members``).

An episode that a rollout cuts off is no longer continued. A masked row behind each rollout keeps
its final observation in a replay, so that no stored transition joins two episodes.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from sterling import random_keys
from sterling.actor import Actor
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.rollout_wrapper import Around
from sterling.types import Record


class NewEpisodes(Around, eqx.Module):
    """Resets every env of ``source``, a plain rollout, before it acts."""

    source: Rollout

    @property
    def traced(self) -> bool:
        """Whether collecting can be compiled: simulators that can only be stepped in a program
        must be reset outside of it."""
        return self.source.world.traced and self.source.world.exact

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[NewEpisodes, Record]:
        """Act for ``length`` steps in every env, from the beginning of an episode. The last row is
        masked."""
        before = self.source
        begun = Rollout.create(before.world, before.length, random_keys.fold_each(keys, "new"))
        begun = dataclasses.replace(begun, tally=before.tally, kept_totals=before.kept_totals)
        act = _live_compiled if before.world.traced else Rollout.live
        source, rows = act(begun, agent, keys)
        return dataclasses.replace(self, source=source), _with_final_row(rows)


_live_compiled = eqx.filter_jit(Rollout.live)


@jax.jit
def _with_final_row(rows: Record) -> Record:
    """Return a rollout ``(seed, time, env, ...)`` with one row more: masked, from the final
    observation to itself."""
    final = jax.tree.map(lambda x: x[:, -1:], rows.next_obs)
    row = jax.tree.map(lambda x: jnp.zeros_like(x[:, -1:]), rows)
    row = dataclasses.replace(row, obs=final, next_obs=final, discount=jnp.ones_like(row.discount))
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y.astype(x.dtype)], 1), rows, row)
