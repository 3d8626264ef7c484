"""Levels: what an episode begins with, so that a world is many, some of them never trained on.

A native task that has levels offers ``level(key) -> level``, a tree of arrays, and
``begin(level, key) -> (state, obs)``; it needs no ``reset``. :func:`book` makes a fixed number of
levels once, so that a step only looks one up, and sets others apart to be judged in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import keys as named
from sterling.types import Mistake, Obs

HELD_OUT = 100  # levels to be judged in, at most
DRAWS = 10  # how many levels are drawn for one that is wanted, before it is said that there is none

Reset = Callable[[Key[Array, ""]], tuple[PyTree, Obs]]


@runtime_checkable
class Levelled(Protocol):
    """A task that has levels."""

    def level(self, key: Key[Array, ""]) -> PyTree:
        """Any level."""

    def begin(self, level: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Obs]:
        """Start an episode in it."""


def resetting(task: Any, book: PyTree = None) -> Reset:
    """``reset`` of a task: where it has levels, ``begin`` in one of those in ``book``, or where
    that is None in any; elsewhere its own."""
    if not isinstance(task, Levelled):
        own: Reset = task.reset
        return own

    def reset(key: Key[Array, ""]) -> tuple[PyTree, Obs]:
        return begin(task, book, key)

    return reset


def begin(
    task: Any,
    book: PyTree,
    key: Key[Array, ""],
    given: Bool[Array, ""] | bool = False,
    told: PyTree = None,
) -> tuple[PyTree, Obs]:
    """Start an episode of a task in one of the levels in ``book``, each as likely as every other,
    or where that is None in any level; but in ``told`` where that is ``given``."""
    own, there = named.fold(key, "level"), named.fold(key, "begin")
    if book is None:
        level = task.level(own)
    else:
        level = at(book, jax.random.randint(own, (), 0, size(book), jnp.int32))
    if told is not None:
        level = jax.tree.map(lambda one, other: jnp.where(given, one, other), told, level)
    begun: tuple[PyTree, Obs] = task.begin(level, there)
    return begun


def begins(task: Any) -> bool:
    """Whether a task, or a class of tasks, says how an episode begins, either way."""
    return hasattr(task, "reset") or isinstance(task, Levelled)


def options_of(task: Any) -> list[str]:
    """What a user may say of a task's levels."""
    return ["levels"] if isinstance(task, Levelled) else []


def at(book: PyTree, number: Int[Array, "..."]) -> PyTree:
    """The levels of these numbers."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[number], book)


def size(book: PyTree) -> int:
    """How many levels a book holds."""
    return len(jax.tree.leaves(book)[0])


def book(task: Any, purpose: str, count: int) -> PyTree:
    """``count`` different levels to train on, leaves ``(level, ...)``; or, to "evaluate", up to
    ``HELD_OUT`` others, which are the same whatever ``count`` is. They depend on nothing but the
    task, so all seeds and all runs share them. Raises Mistake where there are not so many.
    """
    held_out, _ = _different(task, "held-out-level", HELD_OUT, set())
    if purpose.partition("/")[0] == "evaluate":
        return held_out
    made, found = _different(task, "level", count, set(_words(held_out)))
    if found < count:
        remedy = f"give levels={found} or fewer" if found else "give levels=0: a new one each time"
        raise Mistake(
            f"levels={count}: beside the {size(held_out)} to be judged in this world has some "
            f"{found} levels; {remedy}"
        )
    return made


def _different(task: Any, purpose: str, count: int, known: set[bytes]) -> tuple[PyTree, int]:
    """Up to ``count`` levels of which no two are alike nor known, and how many were found."""
    if not isinstance(task, Levelled):
        raise Mistake("this world has no levels; leave out levels=...")
    drawn = named.deal(jax.random.key(0), purpose, DRAWS * count)
    made = jax.tree.map(np.asarray, jax.jit(jax.vmap(task.level))(drawn))
    seen, chosen = set(known), list[int]()
    for index, word in enumerate(_words(made)):
        if word not in seen and len(chosen) < count:
            chosen.append(index)
            seen.add(word)
    return jax.tree.map(lambda leaf: leaf[np.asarray(chosen, int)], made), len(chosen)


def _words(book: PyTree) -> list[bytes]:
    """Each level as one word that is equal for equal levels."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(book)]
    return [b"".join(leaf[row].tobytes() for leaf in leaves) for row in range(size(book))]
