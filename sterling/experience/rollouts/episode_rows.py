"""The steps of whole episodes as rows, for feeds of episodes that ask for them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from sterling.envs.traced_world import tree_where
from sterling.types import Action, Obs, Record, Step


class EpisodeRows(eqx.Module):
    """The steps of one episode per env so far; rows of later steps are zeros."""

    obs: Obs  # ``(seed, env, time + 1, ...)``, the final observation last
    rows: Record  # ``(seed, env, time, ...)``, without observations
    crashed: Bool[Array, "seed env time"]  # where a world crashed and its episode started over

    @classmethod
    def empty(cls, obs: Obs, first: Record, limit: int) -> EpisodeRows:
        """Return the rows of episodes of at most ``limit`` steps that begin with ``obs``; ``first``
        has the shapes and dtypes of a row, ``(seed, env, ...)``."""

        def room(x: Any, steps: int) -> Array:
            return jnp.zeros((*x.shape[:2], steps, *x.shape[2:]), x.dtype)

        rows = jax.tree.map(lambda x: room(x, limit), first)
        seen = jax.tree.map(lambda x: room(jnp.asarray(x), limit + 1), obs)
        seen = jax.tree.map(lambda x, y: x.at[:, :, 0].set(y), seen, _finite(obs))
        return cls(seen, rows, jnp.zeros(rows.mask.shape, bool))

    def with_step(
        self, time: Int[Array, ""], made: tuple[Action, PyTree, Step], over: Bool[Array, "seed env"]
    ) -> EpisodeRows:
        """Return the rows with one more step, of (action, extras, the world's answer), but where
        the episode was ``over``."""
        row, step = episode_row(*made), made[2]
        row, seen = tree_where(~over, (row, _finite(step.obs)), _zeros((row, step.obs)))

        def put(x: Array, new: Array, at: Array) -> Array:
            return x.at[:, :, at].set(new.astype(x.dtype))

        return EpisodeRows(
            jax.tree.map(lambda x, new: put(x, new, time + 1), self.obs, seen),
            jax.tree.map(lambda x, new: put(x, new, time), self.rows, row),
            put(self.crashed, ~over & jnp.asarray(step.last) & ~jnp.asarray(step.mask), time),
        )

    def finished(self, over: Bool[Array, "seed env"], sound: Bool[Array, "seed env"]) -> Record:
        """Return the rows with observations. Masked are those before a world crashed, and of
        episodes that are not ``sound``; ``last`` also marks where the step limit cuts."""
        again = jnp.flip(jnp.cumsum(jnp.flip(self.crashed, -1), -1), -1) > 0
        mask = self.rows.mask & ~again & sound[..., None]
        last = self.rows.last.at[:, :, -1].set(self.rows.last[:, :, -1] | ~over) & mask
        before, after = (
            jax.tree.map(lambda x, cut=cut: x[:, :, cut], self.obs)
            for cut in (slice(None, -1), slice(1, None))
        )
        parts = {**vars(self.rows), "obs": before, "next_obs": after}
        clean: Record = tree_where(sound, Record(**parts), _zeros(Record(**parts)))
        return Record(**{**vars(clean), "last": last, "mask": mask})


def episode_row(action: Action, extras: dict[str, Array], step: Step) -> Record:
    """Return the row of one step, without observations; its extras are the actor's and the
    channels. Rows that are not experience pay nothing."""
    mask = jnp.asarray(step.mask)
    paid = jnp.where(mask, jnp.nan_to_num(jnp.asarray(step.reward)), 0.0)
    told = {name: jnp.asarray(x) for name, x in step.channels.items()}
    told = tree_where(mask, told, _zeros(told))
    discount, last = jnp.asarray(step.discount), jnp.asarray(step.last)
    return Record(None, action, paid, discount, None, last, mask, {**extras, **told})


def _finite(obs: Obs) -> Obs:
    return jax.tree.map(lambda x: jnp.nan_to_num(x) if x.dtype.kind == "f" else x, obs)


def _zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.zeros_like(jnp.asarray(x)), tree)
