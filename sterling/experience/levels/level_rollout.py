"""Rollouts whose episodes begin in levels drawn with given probabilities."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.envs import levels
from sterling.envs.episode_starts import Start, require_startable
from sterling.equations.level_scores import levels_from_uniform
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.rollout_wrapper import Stepwise, act_one_step
from sterling.types import Mistake, Record, World

LEVEL = "level"  # name of the extra that holds each row's level


class EnvLevels(eqx.Module):
    """The levels that the envs are in, and those they will begin next."""

    now: Int[Array, "seed env"]  # the level that each env is in
    following: Int[Array, "seed env"]  # the level of its next episode
    due: Bool[Array, "seed env"]  # where an episode has just begun: the next level must be drawn


class LevelRollout(Stepwise, eqx.Module):
    """A rollout whose episodes begin in levels of a book, the world's or its own.

    When an episode begins, its env's next level is drawn with the probabilities that ``edges``
    cumulates. ``extras["level"]`` of every row is the number of its level.
    """

    source: Rollout
    told: EnvLevels
    edges: Float[Array, "seed level"]
    last: Int[Array, "seed level"]  # number of the last episode begun in each level; 0: none
    count: Int[Array, "seed"]  # number of episodes begun
    book: PyTree = None  # its own levels, ``(seed, level, ...)``; None: the world's

    @classmethod
    def create(cls, source: Rollout, keys: Key[Array, "seed"], book: PyTree = None) -> LevelRollout:
        """Create the source with uniform probabilities; the first row is masked.

        Raises Mistake if there is no ``book`` and the world has no fixed number of levels.
        """
        world = source.world
        if book is None and require_startable(world).book is None:
            raise Mistake(
                "level replay needs a fixed number of levels, such as --env levels=200 (in Python "
                "env={'levels': 200})"
            )
        shape = (world.seeds, world.spec.envs)
        none = jnp.zeros(shape, bool)
        told = EnvLevels(jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.int32), ~none)
        size = levels.count_levels(
            require_startable(world).book if book is None else jax.tree.map(_first_seed, book)
        )
        # sets the shapes; a step draws others
        first = Start(level=levels_at(world, book, told.now))
        begun = require_startable(world).assign_start(source.state, first, ~none, now=True)
        edges = jnp.broadcast_to(jnp.arange(1.0, size + 1.0) / size, (shape[0], size))
        last, count = jnp.zeros(edges.shape, jnp.int32), jnp.zeros(shape[0], jnp.int32)
        source = dataclasses.replace(source, state=begun)
        return cls(source, told, edges.copy(), last, count, book)

    @property
    def recorded(self) -> dict[str, Array]:
        """Return the extras that this source adds to those of the actor and the world."""
        return {LEVEL: self.told.now}

    def _step(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[LevelRollout, Record]:
        """Take one step in every env, ``(seed, env, ...)``."""
        told = self._drawn(named.fold_each(keys, "level"))
        begin = Start(level=levels_at(self.world, self.book, told.following))
        state = require_startable(self.world).assign_start(self.source.state, begin, told.due)
        after, row = act_one_step(dataclasses.replace(self.source, state=state), agent, keys)
        begun = ~row.mask & ~row.last  # rows masked for NaN have last=True
        now = jnp.where(begun, told.following, told.now)
        row = dataclasses.replace(row, extras={**row.extras, LEVEL: now})
        number = self.count[:, None] + jnp.cumsum(begun, 1, dtype=jnp.int32)
        last = jax.vmap(lambda last, at, new: last.at[at].max(new))(
            self.last, now, jnp.where(begun, number, 0)
        )
        told = EnvLevels(now, told.following, begun)
        return LevelRollout(after, told, self.edges, last, number[:, -1], self.book), row

    def _drawn(self, keys: Key[Array, "seed"]) -> EnvLevels:
        """Draw the next levels of the envs that have just begun one."""
        envs = self.told.now.shape[1]
        share = jax.vmap(lambda key: jax.random.uniform(key, (envs,)))(keys)
        number = jax.vmap(levels_from_uniform)(self.edges, share)
        following = jnp.where(self.told.due, number, self.told.following)
        return EnvLevels(self.told.now, following, self.told.due)


def _first_seed(leaf: Array) -> Array:
    """Return the first seed's part."""
    return leaf[0]


def levels_at(world: World, book: PyTree, number: Int[Array, "seed env"]) -> PyTree:
    """Return the levels with these numbers, from each seed's own ``book`` or, if None, the
    world's."""
    if book is None:
        return levels.take_levels(require_startable(world).book, number)
    return jax.vmap(levels.take_levels)(book, number)
