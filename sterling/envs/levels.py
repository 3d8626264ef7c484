"""Levels: what an episode begins with, such as a maze's walls; some are held out of training.

A native task with levels offers ``level(key) -> level``, a tree of arrays, and ``begin(level, key)
-> (state, obs)`` in place of ``reset``. :func:`make_level_book` draws a fixed number of levels
once, so that a step only looks one up, and draws others for evaluation. Such a *book* is one tree
whose leaves are ``(level, ...)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import random_keys
from sterling.system.shown_values import shown_value
from sterling.types import Mistake, Obs

MAX_HELD_OUT = 100  # at most so many levels are kept for evaluation
DRAWS_PER_LEVEL = 10  # draws per wanted level before giving up

ResetFunction = Callable[[Key[Array, ""]], tuple[PyTree, Obs]]


@runtime_checkable
class TaskWithLevels(Protocol):
    """A task whose episodes begin in levels."""

    def level(self, key: Key[Array, ""]) -> PyTree:
        """Draw a random level."""

    def begin(self, level: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Obs]:
        """Start an episode in ``level``."""


def make_reset(task: Any, book: PyTree = None) -> ResetFunction:
    """Return a reset function for a task.

    A task with levels begins in a random level of ``book``, or in any level if that is None. Other
    tasks use their own ``reset``.
    """
    if not isinstance(task, TaskWithLevels):
        own: ResetFunction = task.reset
        return own

    def reset(key: Key[Array, ""]) -> tuple[PyTree, Obs]:
        return begin_episode(task, book, key)

    return reset


def begin_episode(
    task: Any,
    book: PyTree,
    key: Key[Array, ""],
    given: Bool[Array, ""] | bool = False,
    given_level: PyTree = None,
) -> tuple[PyTree, Obs]:
    """Start an episode of a task in a level drawn uniformly from ``book``, or in any level if that
    is None; where ``given``, start in ``given_level`` instead."""
    level_key, begin_key = random_keys.fold(key, "level"), random_keys.fold(key, "begin")
    if book is None:
        level = task.level(level_key)
    else:
        number = jax.random.randint(level_key, (), 0, count_levels(book), jnp.int32)
        level = take_levels(book, number)
    if given_level is not None:
        level = jax.tree.map(lambda x, y: jnp.where(given, x, y), given_level, level)
    begun: tuple[PyTree, Obs] = task.begin(level, begin_key)
    return begun


def can_begin_episodes(task: Any) -> bool:
    """Whether a task, or a class of tasks, can begin an episode: by ``reset`` or by levels."""
    return hasattr(task, "reset") or isinstance(task, TaskWithLevels)


def level_options(task: Any) -> list[str]:
    """Return the names of the options about a task's levels."""
    return ["levels"] if isinstance(task, TaskWithLevels) else []


def level_space(task: Any) -> spaces.Space[Any] | None:
    """Return the space of a task's levels, its ``level_space``; None if it names none. Raise
    Mistake if its levels have another form."""
    space = getattr(task, "level_space", None)
    if space is None:
        return None
    if not (isinstance(space, spaces.Space) and isinstance(task, TaskWithLevels)):
        raise Mistake(
            f"level_space={shown_value(space)} must be a gymnasium space, of a task with level(key)"
        )
    drawn = jax.tree.map(np.shape, jax.eval_shape(task.level, jax.random.key(0)))
    named = jax.tree.map(np.shape, space.sample())
    if drawn != named:
        raise Mistake(
            f"level(key) returns levels of the shapes {drawn}, and those of level_space, {space}, "
            f"have {named}. Correct one of them."
        )
    return space


def take_levels(book: PyTree, number: Int[Array, "..."]) -> PyTree:
    """Return the levels of ``book`` with these indices."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[number], book)


def count_levels(book: PyTree) -> int:
    """Return the number of levels in a book."""
    return len(jax.tree.leaves(book)[0])


def make_level_book(task: Any, purpose: str, count: int) -> PyTree:
    """Draw ``count`` different levels to train in, leaves ``(level, ...)``; for the purpose
    "evaluate" up to ``MAX_HELD_OUT`` others, the same ones whatever ``count`` is.

    They depend on the task alone, so all seeds and all runs share them. Raises Mistake if the task
    does not have enough levels.
    """
    held_out, _ = _draw_distinct_levels(task, "held-out-level", MAX_HELD_OUT, set())
    if purpose.partition("/")[0] == "evaluate":
        return held_out
    made, found = _draw_distinct_levels(task, "level", count, set(_level_bytes(held_out)))
    if found < count:
        remedy = f"Give levels={found} or fewer" if found else "Give levels=0 for random levels"
        raise Mistake(
            f"levels={count} is too many: this world has about {found} levels beside the "
            f"{count_levels(held_out)} held out for evaluation. {remedy}."
        )
    return made


def _draw_distinct_levels(
    task: Any, purpose: str, count: int, known: set[bytes]
) -> tuple[PyTree, int]:
    """Draw up to ``count`` levels, all different and none of them in ``known``; return them and
    their number."""
    if not isinstance(task, TaskWithLevels):
        raise Mistake("This world has no levels. Leave out levels=...")
    drawn = random_keys.split(jax.random.key(0), purpose, DRAWS_PER_LEVEL * count)
    made = jax.tree.map(np.asarray, jax.jit(jax.vmap(task.level))(drawn))
    seen, chosen = set(known), list[int]()
    for index, word in enumerate(_level_bytes(made)):
        if word not in seen and len(chosen) < count:
            chosen.append(index)
            seen.add(word)
    return jax.tree.map(lambda leaf: leaf[np.asarray(chosen, int)], made), len(chosen)


def _level_bytes(book: PyTree) -> list[bytes]:
    """Return each level as bytes, equal for equal levels."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(book)]
    return [b"".join(leaf[row].tobytes() for leaf in leaves) for row in range(count_levels(book))]
