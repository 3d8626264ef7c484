"""Replace a dataset's guessed spaces by those of its environment.

Whether they fit is decided by the columns, not by the guess: by their shapes, and for discrete
spaces by whether the numbers are integers inside the space. Discrete actions may be stored in a
column of width one, or as floats.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts
from sterling.data.episode_columns import Block
from sterling.data.formats import flat_arrays
from sterling.data.goal_columns import lacks_goals, with_goal_columns
from sterling.data.quality.block_checks import OUTSIDE_SPACE, entries_outside
from sterling.data.space_json import Space, column_spaces, is_rescaled
from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

SpacePair = tuple[Space, Space]  # of observations and actions
NAME_ENVIRONMENT = "Name the environment that it was made in: --environment ENV"
BOUND_TOLERANCE = 1e-4  # relative difference allowed between bounds: some files keep fewer digits


def has_guessed_spaces(facts: Facts) -> bool:
    """Whether the spaces of all sources were guessed from their numbers."""
    return all(flat_arrays.GUESSED_SPACES_NOTE in source.notes for source in facts.sources)


def environment_spaces(environment: str) -> SpacePair:
    """Return the observation and action space of an environment known to Gymnasium."""
    try:
        made = gymnasium.make(environment)
    except (gymnasium.error.Error, ImportError) as error:
        near = did_you_mean(environment, gymnasium.registry)
        raise Mistake(f"Gymnasium cannot make {environment!r} ({error}){near}") from error
    made.close()
    return made.observation_space, made.action_space


def check_spaces_fit(had: SpacePair, given: SpacePair) -> None:
    """Raise Mistake if columns of these spaces cannot be columns of the ``given`` spaces, whatever
    their numbers."""
    for kind, own, its in zip(("obs", "action"), had, given, strict=True):
        here, there = column_spaces(kind, own), column_spaces(kind, its)
        like = list(here) == list(there) and all(
            _may_hold(here[name], there[name]) for name in here
        )
        if not like:
            raise Mistake(
                f"The file's {kind} space is {_one_line(own)}, but the environment's is "
                f"{_one_line(its)}. {NAME_ENVIRONMENT}"
            )


def convert_blocks(blocks: Iterable[Block], given: SpacePair) -> Iterator[Block]:
    """Convert blocks to the shapes and dtypes of the ``given`` spaces; raise Mistake if a column
    holds numbers that a discrete space does not contain."""
    named = {**column_spaces("obs", given[0]), **column_spaces("action", given[1])}
    for block in blocks:
        own = {
            name: _convert_column(name, block.arrays[name], part) for name, part in named.items()
        }
        yield dataclasses.replace(block, arrays={**block.arrays, **own})


def with_spaces(dataset: Dataset, given: SpacePair) -> Dataset:
    """Return a dataset with the ``given`` spaces; only columns that change are copied."""
    check_spaces_fit((dataset.obs_space, dataset.action_space), given)
    (block,) = convert_blocks(dataset.blocks(max(dataset.rows, 1)), given)
    made = Dataset.from_block(block, *given, dataset.facts)
    made.path, made.mapped = dataset.path, dataset.mapped
    return made


def match_world_spaces(log: Dataset, given: SpacePair, name: str, checked: bool = True) -> Dataset:
    """Return a dataset for the environment ``name``: guessed spaces are replaced by its spaces. In
    a world with goals what was observed is also what was achieved, if the log says no more.

    Raises Mistake if the dataset cannot be from that environment: its columns do not fit, its
    actions lie outside (only if ``checked``), or it states other action bounds, so that an agent's
    [-1, 1] would mean different actions in the dataset and in the environment.
    """
    if lacks_goals(log.obs_space, given[0]):
        log = with_goal_columns(log)
    if not has_guessed_spaces(log.facts):
        _check_action_bounds(log, given[1], name)
        return log
    made = with_spaces(log, given)
    if checked:
        _check_actions_inside(made, name)
    return made


def _check_actions_inside(log: Dataset, world: str) -> None:
    named = column_spaces("action", log.action_space)
    for column, part in ((x.arrays[name], named[name]) for x in log.blocks() for name in named):
        for _, bad, word in entries_outside(part, column):
            if word != OUTSIDE_SPACE or not bad.any():
                continue
            shown = np.array2string(column[np.argmax(bad)], precision=4, threshold=6)
            raise Mistake(
                f"The dataset has the action {_one_line(shown)}, which lies outside the action "
                f"space of {world}. {NAME_ENVIRONMENT}; or clip the actions: "
                f"sterling data import {log.path} OUT --environment {world}, then sterling data "
                "check OUT --fix REPAIRED"
            )


def _check_action_bounds(log: Dataset, given: Space, world: str) -> None:
    own, its = column_spaces("action", log.action_space), column_spaces("action", given)
    for name in own.keys() & its.keys():
        here, there = own[name], its[name]
        if not (isinstance(here, gym_spaces.Box) and isinstance(there, gym_spaces.Box)):
            continue
        if here.shape != there.shape or not (is_rescaled(here) or is_rescaled(there)):
            continue  # shapes are checked elsewhere, or nothing is rescaled
        pairs = zip((here.low, here.high), (there.low, there.high), strict=True)
        other = ~np.all([np.isclose(*pair, BOUND_TOLERANCE) for pair in pairs], 0)
        if other.any():
            at = np.unravel_index(np.argmax(other), other.shape)
            raise Mistake(
                f"The dataset's actions are bounded by {here.low[at]:g} and {here.high[at]:g}, but "
                f"those of {world} by {there.low[at]:g} and {there.high[at]:g}. "
                f"{NAME_ENVIRONMENT}; or, if its numbers are {world}'s, say so: "
                f"sterling data import {log.path} OUT --environment {world}"
            )


def _may_hold(own: Space, its: Space) -> bool:
    """Whether a column of space ``own`` may belong to the environment's space ``its``: the shapes
    are equal, and ``own`` is not discrete where ``its`` is real."""
    here, there = tuple(own.shape or ()), tuple(its.shape or ())
    lone = {here, there} <= {(), (1,)}
    measured = isinstance(its, gym_spaces.Box) and np.issubdtype(its.dtype, np.floating)
    return (here == there or lone) and (isinstance(own, gym_spaces.Box) or not measured)


def _convert_column(name: str, array: np.ndarray, space: Space) -> np.ndarray:
    """Return a column in its space's shape; its dtype changes only between floats and integers."""
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
            f"Column {name!r} holds numbers that the environment's space {_one_line(space)} does "
            f"not contain. {NAME_ENVIRONMENT}"
        )
    return cast


def _check_choices(name: str, array: np.ndarray, space: Space) -> None:
    wrong = np.zeros(len(array), bool)
    if array.dtype.kind == "f":
        wrong = np.asarray((np.rint(array) != array).reshape(len(array), -1).any(1))
    for _, bad, _ in entries_outside(
        space, array.astype(np.uint8) if array.dtype.kind == "b" else array
    ):
        wrong |= bad
    if wrong.any():
        raise Mistake(
            f"Column {name!r} holds {_one_line(array[np.argmax(wrong)])}, which the environment's "
            f"space {_one_line(space)} does not contain. {NAME_ENVIRONMENT}"
        )


def _one_line(value: object) -> str:
    """Return the text of a space or an array in one line."""
    return " ".join(str(value).split())
