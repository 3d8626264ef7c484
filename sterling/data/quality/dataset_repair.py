"""Repair a copy of a dataset: fix what ``check`` found, where no number must be invented."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from gymnasium import spaces as gym_spaces
from jaxtyping import Bool

from sterling.data import space_json
from sterling.data.dataset import Dataset
from sterling.data.episode_columns import Arrays, Block, is_per_observation, join_blocks
from sterling.data.quality.block_checks import entries_outside
from sterling.data.quality.dataset_findings import (
    CAST_COLUMN,
    CLIP_ACTIONS,
    COPY_OBSERVATION,
    DROP_EPISODE,
    DROP_LAST_STEP,
    DROP_STEPS,
    MARK_TRUNCATED,
    MOVE_INWARD,
    SPLIT_EPISODE,
    Finding,
)
from sterling.data.quality.logged_masks import mask_faults
from sterling.types import Mistake

REPAIRED = "repaired"  # begins the note about a repair
EDGE_MARGIN = 1e-5  # of the range: how far actions on a bound are moved inside


def repair_dataset(dataset: Dataset, findings: Sequence[Finding]) -> Dataset:
    """Return a copy in memory in which every finding with a ``fix`` is repaired; its notes list
    the repairs.

    Where steps are dropped, the parts on either side become episodes of their own, truncated there,
    with their true successors. Raises Mistake if nothing is left.
    """
    fixes = {one.fix for one in findings}
    wanted: dict[int, list[Finding]] = {}
    for one in findings:
        wanted.setdefault(-1 if one.episode is None else one.episode, []).append(one)
    limits = {
        int(dataset.lengths[one.episode or 0]) for one in findings if one.fix == MARK_TRUNCATED
    }
    kept: list[Block] = []
    number = 0
    for block in dataset.blocks():
        for at in range(len(block.lengths)):
            own = wanted.get(number, [])
            episode = _repair_columns(dataset, block.cut(at, at + 1), fixes, limits)
            kept += _intact_pieces(dataset, _repair_episode(dataset, episode, own), own)
            number += 1
    if not kept:
        raise Mistake(
            "No step of the dataset would be left after repairing it. Restore or regenerate it."
        )
    facts = dataset.facts.with_notes(*(f"{REPAIRED}: {fix}" for fix in sorted(fixes - {""})))
    return Dataset.from_block(join_blocks(kept), dataset.obs_space, dataset.action_space, facts)


def _repair_columns(dataset: Dataset, episode: Block, fixes: set[str], limits: set[int]) -> Block:
    """Apply the repairs that concern every episode: types, actions on a bound, wrong terminals."""
    arrays: Arrays = dict(episode.arrays)
    actions = space_json.column_spaces("action", dataset.action_space)
    if CAST_COLUMN in fixes:
        for name, part in {**actions, **space_json.column_spaces("obs", dataset.obs_space)}.items():
            arrays[name] = _cast_column(name, arrays[name], part)
    if MOVE_INWARD in fixes:
        for name, part in actions.items():
            if isinstance(part, gym_spaces.Box) and space_json.is_clippable(part):
                slight = EDGE_MARGIN * (part.high - part.low)
                inside = np.clip(arrays[name], part.low + slight, part.high - slight)
                arrays[name] = inside.astype(arrays[name].dtype)
    if episode.rows in limits:
        discount = arrays["discount"].copy()
        discount[-1] = 1  # its other rows stay, and with them ends inside, which are split
        arrays["discount"] = discount
    return Block(arrays, episode.lengths, episode.sources)


def _cast_column(name: str, array: np.ndarray, space: space_json.Space) -> np.ndarray:
    """Return a column in its space's type; raise Mistake if that would change numbers."""
    dtype = np.dtype(space.dtype)
    if (array.dtype.kind == "f") == (dtype.kind == "f"):
        return array
    made = array.astype(dtype)
    if not np.array_equal(made.astype(array.dtype), array):
        raise Mistake(
            f"Column {name!r} is {array.dtype} with fractions, but its space holds integers. Name "
            "the environment it was made in: sterling data import FILE OUT --environment ENV"
        )
    return made


def _repair_episode(dataset: Dataset, episode: Block, findings: Sequence[Finding]) -> Block:
    """Apply the repairs of this episode that keep all its steps."""
    arrays: Arrays = dict(episode.arrays)
    fixes = {one.fix for one in findings}
    if CLIP_ACTIONS in fixes:
        for name, part in space_json.column_spaces("action", dataset.action_space).items():
            if isinstance(part, gym_spaces.Box):
                arrays[name] = np.clip(arrays[name], part.low, part.high)
    if COPY_OBSERVATION in fixes:
        for name in space_json.column_spaces("obs", dataset.obs_space):
            arrays[name] = np.concatenate([arrays[name][:-1], arrays[name][-2:-1]])
    return Block(arrays, episode.lengths, episode.sources)


def _intact_pieces(
    dataset: Dataset, episode: Block, findings: Sequence[Finding]
) -> Iterator[Block]:
    """Yield what is left of an episode: all of it, some intact parts, or nothing."""
    fixes = {one.fix for one in findings}
    if DROP_EPISODE in fixes or not episode.rows:
        return
    good = np.ones(episode.rows, bool)
    if DROP_STEPS in fixes:
        good = _usable_rows(dataset, episode)
    if DROP_LAST_STEP in fixes:
        good[-1] = False
    stops = good.copy()  # the last row of an intact part
    stops[:-1] &= ~good[1:]
    if SPLIT_EPISODE in fixes:
        stops |= good & (episode.arrays["discount"] == 0)
    if good.all() and not stops[:-1].any():
        yield episode
        return
    first = 0
    for last in np.flatnonzero(stops).tolist():
        first += int(np.argmax(good[first : last + 1]))
        yield _cut_rows(episode, first, last + 1)
        first = last + 1


def _usable_rows(dataset: Dataset, episode: Block) -> Bool[np.ndarray, "row"]:
    """Return a mask of rows that are finite, successor included, and whose discrete action lies in
    its space and is not forbidden by its action mask."""
    good = np.ones(episode.rows, bool)
    for name, array in episode.arrays.items():
        if array.dtype.kind != "f" or name.startswith("info/"):
            continue
        finite = np.asarray(space_json.fits_float32(array).reshape(len(array), -1).all(1))
        good &= finite[:-1] & finite[1:] if is_per_observation(name) else finite
    for name, part in space_json.column_spaces("action", dataset.action_space).items():
        if not isinstance(part, gym_spaces.Box):
            for _, bad, _ in entries_outside(part, episode.arrays[name]):
                good &= ~bad
    if (masks := mask_faults(dataset, episode)) is not None:
        good &= ~masks.forbidden
    return good


def _cut_rows(episode: Block, first: int, stop: int) -> Block:
    arrays = {
        name: array[first : stop + is_per_observation(name)]
        for name, array in episode.arrays.items()
    }
    return Block(arrays, np.array([stop - first], np.int64), episode.sources)
