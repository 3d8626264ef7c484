"""Keep each env in one level: begin its present episode and all later ones there.

Agents that adapt to a level (``adaptation_rollout.py``) need several episodes in it. A world
without levels is one task, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from sterling import random_keys as named
from sterling.envs import levels
from sterling.envs.episode_starts import Start, require_startable
from sterling.envs.world_wrappers import Wrapper
from sterling.nets.action_heads import Actions
from sterling.seed_axis import over_seeds
from sterling.types import Obs, World


def level_maker(world: World) -> Callable[[Key[Array, ""]], PyTree] | None:
    """Return a function from a random key to one of the world's levels: one from its book if their
    number is fixed, otherwise a new one. None for a world without levels."""
    task = task_of(world)
    if not _has_levels(task):
        return None
    book = require_startable(world).book
    if book is None:
        draw: Callable[[Key[Array, ""]], PyTree] = task.level
        return draw

    def draw_from_book(key: Key[Array, ""]) -> PyTree:
        return levels.take_levels(
            book, jax.random.randint(key, (), 0, levels.count_levels(book), jnp.int32)
        )

    return draw_from_book


def task_of(world: World) -> Any:
    """Return the Task inside a world and its wrappers; None if there is none."""
    inner = world
    while isinstance(inner, Wrapper):
        inner = inner.world
    return getattr(inner, "task", None)


def begin_in_one_level(
    world: World, state: PyTree, obs: Obs, keys: Key[Array, "seed"]
) -> tuple[PyTree, Obs]:
    """Begin an episode in every env, in a level drawn with ``keys``; the env's later episodes begin
    in the same level. Return the world's state and observations ``(seed, env, ...)``.

    ``state`` and ``obs`` are what the world's ``reset`` returned; they are returned unchanged if
    the world has no levels.
    """
    return (state, obs) if level_maker(world) is None else _begin_compiled(world, state, keys)


@eqx.filter_jit
def _begin_compiled(world: World, state: PyTree, keys: Key[Array, "seed"]) -> tuple[PyTree, Obs]:
    """Do the same for a world that has levels."""
    every = jnp.ones((world.seeds, world.spec.envs), bool)
    start = Start(level=_draw_levels(world, keys))
    state = require_startable(world).assign_start(state, start, every, now=True)
    nothing = Actions.from_space(world.spec.action).nothing(every.shape)
    state, step = world.step(state, nothing, named.fold_each(keys, "begin"))  # the masked row
    return state, step.obs


def begun_levels(world: World, keys: Key[Array, "seed"], one_level: bool) -> PyTree:
    """Return the levels in which the episodes of ``world.reset(keys)`` begin, or with ``one_level``
    those of :func:`begin_in_one_level`; leaves ``(seed, env, ...)``. None for a world without
    levels."""
    if level_maker(world) is None:
        return None
    return (_draw_levels if one_level else _draw_reset_levels)(world, keys)


def _draw_levels(world: World, keys: Key[Array, "seed"]) -> PyTree:
    draw, envs = level_maker(world), world.spec.envs
    assert draw is not None
    made = jax.vmap(draw)
    return over_seeds("map", lambda key: made(named.split(key, "level", envs)))(keys)


@eqx.filter_jit
def _draw_reset_levels(world: World, keys: Key[Array, "seed"]) -> PyTree:
    """Draw as a world's reset does (``envs/levels.py``)."""
    draw, envs = level_maker(world), world.spec.envs
    assert draw is not None
    made = jax.vmap(lambda own: draw(named.fold(own, "level")))
    return over_seeds("map", lambda key: made(named.split(key, "env", envs)))(keys)


def _has_levels(task: Any) -> bool:
    """Whether the task has levels with content; those of multi-episode trials may be empty."""
    if not isinstance(task, levels.TaskWithLevels):
        return False
    return bool(jax.tree.leaves(jax.eval_shape(task.level, jax.random.key(0))))
