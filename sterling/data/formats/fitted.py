"""Columns whose spaces were guessed, in the spaces of the environment that they are of.

The column itself is tried, not the guess: its shape, and of choices that they are whole numbers
that there are. Choices may lie in a column of their own, or be kept as whole floats.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
from gymnasium import spaces as gym_spaces

from sterling.data.columns import Block
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts
from sterling.data.formats import flat
from sterling.data.looks import OUTSIDE, outside
from sterling.data.spaces import Space, is_rescaled, parts
from sterling.types import Mistake

Spaces = tuple[Space, Space]  # of observations and actions
RELATIVE = 1e-4  # by which bounds may differ: some are kept in fewer digits


def is_guess(facts: Facts) -> bool:
    """Whether all that is known of a dataset's spaces was guessed from its numbers."""
    return all(flat.GUESSED in source.notes for source in facts.sources)


def check_form(had: Spaces, given: Spaces) -> None:
    """Raises Mistake where columns cannot be of the ``given`` spaces, whatever their numbers."""
    for kind, own, its in zip(("obs", "action"), had, given, strict=True):
        here, there = parts(kind, own), parts(kind, its)
        like = list(here) == list(there) and all(_alike(here[name], there[name]) for name in here)
        if not like:
            raise Mistake(
                f"the file's {kind} space is {_line(own)}, the environment's {_line(its)}; name "
                "the environment that it was made in"
            )


def in_spaces(blocks: Iterable[Block], given: Spaces) -> Iterator[Block]:
    """The blocks in shapes and types of the ``given`` spaces; raises Mistake where a column holds
    other numbers than choices of them."""
    named = {**parts("obs", given[0]), **parts("action", given[1])}
    for block in blocks:
        own = {name: _column(name, block.arrays[name], part) for name, part in named.items()}
        yield dataclasses.replace(block, arrays={**block.arrays, **own})


def restated(dataset: Dataset, given: Spaces) -> Dataset:
    """A dataset with the ``given`` spaces instead of its own; only what changes is copied."""
    check_form((dataset.obs_space, dataset.action_space), given)
    (block,) = in_spaces(dataset.blocks(max(dataset.rows, 1)), given)
    made = Dataset.of(block, *given, dataset.facts)
    made.path, made.mapped = dataset.path, dataset.mapped
    return made


def of_world(log: Dataset, given: Spaces, name: str, checked: bool = True) -> Dataset:
    """A log in the spaces that the world ``name`` has: guessed ones give way to these.

    Raises Mistake where the log cannot be of that world: its columns do not fit, its actions lie
    outside (unless they are not ``checked``), or it says other bounds of actions, so that an
    agent's [-1, 1] would mean another thing in either.
    """
    if not is_guess(log.facts):
        _check_bounds(log, given[1], name)
        return log
    made = restated(log, given)
    if checked:
        _check_reach(made, name)
    return made


def _check_reach(log: Dataset, world: str) -> None:
    named = parts("action", log.action_space)
    for column, part in ((x.arrays[name], named[name]) for x in log.blocks() for name in named):
        for _, bad, word in outside(part, column):
            if word != OUTSIDE or not bad.any():
                continue
            shown = np.array2string(column[np.argmax(bad)], precision=4, threshold=6)
            raise Mistake(
                f"the log has the action {_line(shown)}, which lies outside of what {world} takes; "
                "name the environment that it was made in, or clip: sterling data import "
                f"{log.path} OUT --environment {world}, then sterling data check OUT --fix MENDED"
            )


def _check_bounds(log: Dataset, given: Space, world: str) -> None:
    own, its = parts("action", log.action_space), parts("action", given)
    for name in own.keys() & its.keys():
        here, there = own[name], its[name]
        if not (isinstance(here, gym_spaces.Box) and isinstance(there, gym_spaces.Box)):
            continue
        if here.shape != there.shape or not (is_rescaled(here) or is_rescaled(there)):
            continue  # said elsewhere, or nothing is rescaled
        pairs = zip((here.low, here.high), (there.low, there.high), strict=True)
        other = ~np.all([np.isclose(*pair, RELATIVE) for pair in pairs], 0)
        if other.any():
            at = np.unravel_index(np.argmax(other), other.shape)
            raise Mistake(
                f"the log says that actions lie between {here.low[at]:g} and {here.high[at]:g}, in "
                f"{world} they do between {there.low[at]:g} and {there.high[at]:g}; name the "
                f"environment that it was made in, or say that its numbers are {world}'s: sterling "
                f"data import {log.path} OUT --environment {world}"
            )


def _alike(own: Space, its: Space) -> bool:
    """Whether a column of one space may be of the other: as many numbers, and no choices where
    the environment measures."""
    here, there = tuple(own.shape or ()), tuple(its.shape or ())
    lone = {here, there} <= {(), (1,)}
    measured = isinstance(its, gym_spaces.Box) and np.issubdtype(its.dtype, np.floating)
    return (here == there or lone) and (isinstance(own, gym_spaces.Box) or not measured)


def _column(name: str, array: np.ndarray, space: Space) -> np.ndarray:
    """A column in its space's shape, and in its type where that is of another kind."""
    shape, dtype = tuple(space.shape or ()), np.dtype(space.dtype)
    made = array.reshape(len(array), *shape)
    if not isinstance(space, gym_spaces.Box):
        _check_choices(name, made, space)
        return made.astype(dtype, copy=False)
    if (made.dtype.kind == "f") == (dtype.kind == "f"):
        return made
    cast = made.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(cast.astype(made.dtype), made):
        raise Mistake(
            f"{name} holds numbers that are not of the environment's {_line(space)}; name the "
            "environment that the file was made in"
        )
    return cast


def _check_choices(name: str, array: np.ndarray, space: Space) -> None:
    wrong = np.zeros(len(array), bool)
    if array.dtype.kind == "f":
        wrong = np.asarray((np.rint(array) != array).reshape(len(array), -1).any(1))
    for _, bad, _ in outside(space, array.astype(np.uint8) if array.dtype.kind == "b" else array):
        wrong |= bad
    if wrong.any():
        raise Mistake(
            f"{name} holds {_line(array[np.argmax(wrong)])}, which is none of the environment's "
            f"choices, {_line(space)}; name the environment that the file was made in"
        )


def _line(said: object) -> str:
    """Arrays as spaces show them, in one line."""
    return " ".join(str(said).split())
