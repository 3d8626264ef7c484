"""Rollouts whose episodes begin in levels that are drawn by given chances."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys as named
from sterling.actor import Actor
from sterling.envs import levels
from sterling.envs.starts import Start, able
from sterling.equations.level_replay import drawn
from sterling.experience.rollout import Rollout
from sterling.experience.stepwise import Stepwise, lived
from sterling.types import Mistake, Record

LEVEL = "level"  # under this name rows say in which level they were lived


class Told(eqx.Module):
    """Which levels the envs are in, and which were begun when."""

    now: Int[Array, "seed env"]  # the level of the episode that each env is in
    following: Int[Array, "seed env"]  # of the next one
    due: Bool[Array, "seed env"]  # where the newest row began an episode: another must be drawn


class LevelRollout(Stepwise, eqx.Module):
    """Lives what ``source`` lives, every episode in a level of the world's book: as soon as one has
    begun, its env's next level is drawn by the chances that ``edges`` cumulate. In
    ``extras["level"]`` of every row stands the number of its level."""

    source: Rollout
    told: Told
    edges: Float[Array, "seed level"]
    last: Int[Array, "seed level"]  # the number of the episode begun last in each; 0: none was
    count: Int[Array, "seed"]  # episodes begun

    @classmethod
    def create(cls, source: Rollout, keys: Key[Array, "seed"]) -> LevelRollout:
        """Begin in levels of which each is as likely as every other; the first row is a masked one.
        Raises Mistake where the world's levels are no fixed number."""
        world, book = source.world, able(source.world).book
        if book is None:
            raise Mistake(
                "levels are chosen among a fixed number of them; give the environment levels=N "
                "(--env levels=200)"
            )
        size, shape = levels.size(book), (world.seeds, world.spec.envs)
        none = jnp.zeros(shape, bool)
        told = Told(jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.int32), ~none)
        first = Start(level=levels.at(book, told.now))  # makes room; the first step draws others
        begun = able(world).assign(source.state, first, ~none, now=True)
        edges = jnp.broadcast_to(jnp.arange(1.0, size + 1.0) / size, (shape[0], size))
        last, count = jnp.zeros(edges.shape, jnp.int32), jnp.zeros(shape[0], jnp.int32)
        return cls(dataclasses.replace(source, state=begun), told, edges.copy(), last, count)

    @property
    def recorded(self) -> dict[str, Array]:
        """What is recorded beside the actor's extras and the world's channels."""
        return {LEVEL: self.told.now}

    def _step(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[LevelRollout, Record]:
        """One step of every env, ``(seed, env, ...)``."""
        told = self._drawn(named.fold_each(keys, "level"))
        begin = Start(level=levels.at(able(self.world).book, told.following))
        state = able(self.world).assign(self.source.state, begin, told.due)
        after, row = lived(dataclasses.replace(self.source, state=state), agent, keys)
        begun = ~row.mask & ~row.last  # rows that are masked for their NaN are marked as last
        now = jnp.where(begun, told.following, told.now)
        row = dataclasses.replace(row, extras={**row.extras, LEVEL: now})
        number = self.count[:, None] + jnp.cumsum(begun, 1, dtype=jnp.int32)
        last = jax.vmap(lambda last, at, new: last.at[at].max(new))(
            self.last, now, jnp.where(begun, number, 0)
        )
        told = Told(now, told.following, begun)
        return LevelRollout(after, told, self.edges, last, number[:, -1]), row

    def _drawn(self, keys: Key[Array, "seed"]) -> Told:
        """With the next levels of envs whose last one has been begun."""
        envs = self.told.now.shape[1]
        share = jax.vmap(lambda key: jax.random.uniform(key, (envs,)))(keys)
        number = jax.vmap(drawn)(self.edges, share)
        following = jnp.where(self.told.due, number, self.told.following)
        return Told(self.told.now, following, self.told.due)
