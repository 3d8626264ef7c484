"""Rollouts whose episodes begin in levels that are drawn by given chances."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import keys as named
from sterling.actor import Actor
from sterling.envs import levels
from sterling.envs.starts import Start, able
from sterling.equations.level_replay import drawn
from sterling.experience.rollout import Rollout
from sterling.experience.stepwise import Stepwise, lived
from sterling.types import Mistake, Record, World

LEVEL = "level"  # under this name rows say in which level they were lived


class Told(eqx.Module):
    """Which levels the envs are in, and which were begun when."""

    now: Int[Array, "seed env"]  # the level of the episode that each env is in
    following: Int[Array, "seed env"]  # of the next one
    due: Bool[Array, "seed env"]  # where the newest row began an episode: another must be drawn


class LevelRollout(Stepwise, eqx.Module):
    """Lives what ``source`` lives, every episode in a level of a book, the world's or its own: as
    soon as one has begun, its env's next level is drawn by the chances that ``edges`` cumulate. In
    ``extras["level"]`` of every row stands the number of its level."""

    source: Rollout
    told: Told
    edges: Float[Array, "seed level"]
    last: Int[Array, "seed level"]  # the number of the episode begun last in each; 0: none was
    count: Int[Array, "seed"]  # episodes begun
    book: PyTree = None  # levels of its own, ``(seed, level, ...)``; None: the world's

    @classmethod
    def create(cls, source: Rollout, keys: Key[Array, "seed"], book: PyTree = None) -> LevelRollout:
        """Begin in levels of which each is as likely as every other; the first row is a masked one.
        Raises Mistake where there is no ``book`` and the world's levels are no fixed number."""
        world = source.world
        if book is None and able(world).book is None:
            raise Mistake(
                "levels are chosen among a fixed number of them; give the environment levels=N "
                "(--env levels=200)"
            )
        shape = (world.seeds, world.spec.envs)
        none = jnp.zeros(shape, bool)
        told = Told(jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.int32), ~none)
        size = levels.size(able(world).book if book is None else jax.tree.map(_of_one, book))
        first = Start(level=levels_at(world, book, told.now))  # makes room; a step draws others
        begun = able(world).assign(source.state, first, ~none, now=True)
        edges = jnp.broadcast_to(jnp.arange(1.0, size + 1.0) / size, (shape[0], size))
        last, count = jnp.zeros(edges.shape, jnp.int32), jnp.zeros(shape[0], jnp.int32)
        source = dataclasses.replace(source, state=begun)
        return cls(source, told, edges.copy(), last, count, book)

    @property
    def recorded(self) -> dict[str, Array]:
        """What is recorded beside the actor's extras and the world's channels."""
        return {LEVEL: self.told.now}

    def _step(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[LevelRollout, Record]:
        """One step of every env, ``(seed, env, ...)``."""
        told = self._drawn(named.fold_each(keys, "level"))
        begin = Start(level=levels_at(self.world, self.book, told.following))
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
        return LevelRollout(after, told, self.edges, last, number[:, -1], self.book), row

    def _drawn(self, keys: Key[Array, "seed"]) -> Told:
        """With the next levels of envs whose last one has been begun."""
        envs = self.told.now.shape[1]
        share = jax.vmap(lambda key: jax.random.uniform(key, (envs,)))(keys)
        number = jax.vmap(drawn)(self.edges, share)
        following = jnp.where(self.told.due, number, self.told.following)
        return Told(self.told.now, following, self.told.due)


def _of_one(leaf: Array) -> Array:
    """What belongs to the first seed."""
    return leaf[0]


def levels_at(world: World, book: PyTree, number: Int[Array, "seed env"]) -> PyTree:
    """The levels of these numbers in a book of each seed's own, or where that is None in the
    world's."""
    if book is None:
        return levels.at(able(world).book, number)
    return jax.vmap(levels.at)(book, number)
