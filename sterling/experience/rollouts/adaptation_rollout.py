"""Rollouts of agents that adapt to a level, for learning and for evaluation.

Every env stays in one level (``one_level.py``). It takes its first ``needs.adapt`` steps with the
state that all envs share; the algorithm's ``adapt(state, batch, key)`` returns a state for this env
from these rows; and the env's further steps are taken with that state. :class:`Adaptation` feeds a
learner with rollouts of both kinds of rows, one after the other; :func:`adapt_agent` returns the
actor that evaluation plays its episodes with.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from sterling import random_keys as named
from sterling.experience.batch_draws import Due, PreparedBatches, every_feed
from sterling.experience.levels.one_level import begin_in_one_level
from sterling.experience.rollouts.population_episodes import PopulationActor, StatelessSource
from sterling.experience.rollouts.rollout import Rollout, Tally
from sterling.types import Record, Rollouts, World


class Adaptation(StatelessSource, eqx.Module):
    """Takes ``length`` steps in every env of ``world``: the first ``adapt`` with the agent, the
    others with the agent adapted to that env. Rows are ``(seed, time, env, ...)``.

    In every iteration each env begins an episode in a newly drawn level. Episodes continue across
    the adaptation.
    """

    world: World = eqx.field(static=True)
    length: int = eqx.field(static=True)
    adapt: int = eqx.field(static=True)
    tally: Tally

    @classmethod
    def create(cls, world: World, needs: Rollouts) -> Adaptation:
        """Create the source with an empty tally."""
        return cls(world, needs.length, needs.adapt, Tally.of_world(world))

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Adaptation, PreparedBatches]:
        """Act, adapt, and act with the adapted agents; all rows form one batch."""
        rollout = _begin_rollout(
            self.world, self.adapt, agent, named.fold_each(keys, "level"), keys
        )
        rollout = dataclasses.replace(rollout, tally=self.tally)
        rollout, first = _take_steps(rollout, agent, named.fold_each(keys, "before"))
        members = PopulationActor.from_adaptation(agent, first, named.fold_each(keys, "adapt"))
        rollout = rollout.with_length(self.length - self.adapt)
        rollout, others = _take_steps(rollout, members, named.fold_each(keys, "after"))
        rows = _concatenate_rows(first, others)
        return dataclasses.replace(self, tally=rollout.tally), PreparedBatches(rows)


def steps_to_adapt(actor: Any) -> int:
    """Return how many steps of every env an actor adapts to; 0 if it does not adapt."""
    return int(getattr(getattr(actor, "needs", None), "adapt", 0))


def adapt_agent(
    agent: Any, world: World, levels: Key[Array, "seed"], keys: Key[Array, "seed"]
) -> PopulationActor:
    """Return the agent adapted to every env of ``world``, by ``needs.adapt`` steps with exploration
    in the level that the keys ``levels`` draw for the env."""
    rows = rows_to_adapt_to(agent, world, levels, keys)
    return PopulationActor.from_adaptation(agent, rows, named.fold_each(keys, "adapt"))


def rows_to_adapt_to(
    agent: Any, world: World, levels: Key[Array, "seed"], keys: Key[Array, "seed"]
) -> Record:
    """Return the rows ``(seed, time, env, ...)`` of these steps."""
    rollout = _begin_rollout(world, steps_to_adapt(agent), agent, levels, keys)
    return _take_steps(rollout, agent, named.fold_each(keys, "before"))[1]


def _take_steps(rollout: Rollout, actor: Any, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
    """Take the rollout's steps; return it and their rows. Traced worlds run as one program."""
    return (
        _live_compiled(rollout, actor, keys) if rollout.world.traced else rollout.live(actor, keys)
    )


_live_compiled = eqx.filter_jit(Rollout.live)


def _begin_rollout(
    world: World, length: int, agent: Any, levels: Key[Array, "seed"], keys: Key[Array, "seed"]
) -> Rollout:
    """Return a rollout before its first step, with every env in its own level."""
    rollout = Rollout.create(world, length, keys, agent)
    state, obs = begin_in_one_level(world, rollout.state, rollout.obs, levels)
    return dataclasses.replace(rollout, state=state, obs=obs)


def _concatenate_rows(first: Record, others: Record) -> Record:
    """Return the rows of two rollouts, ``(seed, time, env, ...)``, one after the other."""
    parts = (dataclasses.replace(rows, start=None) for rows in (first, others))
    rows = jax.tree.map(lambda x, y: jnp.concatenate([x, y], 1), *parts)
    return dataclasses.replace(rows, start=first.start)
