"""A repaired copy of a dataset: what ``check`` found and can put right without inventing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from gymnasium import spaces as gym_spaces
from jaxtyping import Bool

from sterling.data import spaces
from sterling.data.columns import Arrays, Block, has_successors, joined
from sterling.data.dataset import Dataset
from sterling.data.findings import (
    CAST,
    CLIP,
    COPY,
    CUTS,
    DROP,
    GIVE_UP,
    INWARD,
    LEAVE_OUT,
    SPLIT,
    Finding,
)
from sterling.data.looks import outside
from sterling.types import Mistake

SLIGHTLY = 1e-5  # of the range: how far actions on the edge are moved


def repaired(dataset: Dataset, findings: Sequence[Finding]) -> Dataset:
    """A copy, in memory, in which every finding with a ``fix`` is mended; it says so in its notes.

    Steps are left out only with what surrounds them intact: what remains on either side are
    episodes of their own, cut where the steps were, with their true successors. Raises Mistake if
    nothing is left.
    """
    fixes = {one.fix for one in findings}
    wanted: dict[int, list[Finding]] = {}
    for one in findings:
        wanted.setdefault(-1 if one.episode is None else one.episode, []).append(one)
    limits = {int(dataset.lengths[one.episode or 0]) for one in findings if one.fix == CUTS}
    kept: list[Block] = []
    number = 0
    for block in dataset.blocks():
        for at in range(len(block.lengths)):
            own = wanted.get(number, [])
            episode = _columns(dataset, block.cut(at, at + 1), fixes, limits)
            kept += _pieces(dataset, _mended(dataset, episode, own), own)
            number += 1
    if not kept:
        raise Mistake("nothing would be left of the dataset after repairing it")
    facts = dataset.facts.noted(*(f"repaired: {fix}" for fix in sorted(fixes - {""})))
    return Dataset.of(joined(kept), dataset.obs_space, dataset.action_space, facts)


def _columns(dataset: Dataset, episode: Block, fixes: set[str], limits: set[int]) -> Block:
    """What is mended in every episode alike."""
    arrays: Arrays = dict(episode.arrays)
    actions = spaces.parts("action", dataset.action_space)
    if CAST in fixes:
        for name, part in {**actions, **spaces.parts("obs", dataset.obs_space)}.items():
            arrays[name] = _cast(name, arrays[name], part)
    if INWARD in fixes:
        for name, part in actions.items():
            if isinstance(part, gym_spaces.Box) and spaces.has_edges(part):
                slight = SLIGHTLY * (part.high - part.low)
                inside = np.clip(arrays[name], part.low + slight, part.high - slight)
                arrays[name] = inside.astype(arrays[name].dtype)
    if episode.rows in limits:
        arrays["discount"] = np.ones_like(arrays["discount"])
    return Block(arrays, episode.lengths, episode.sources)


def _cast(name: str, array: np.ndarray, space: spaces.Space) -> np.ndarray:
    """A column in its space's type; raises Mistake where that would change numbers."""
    dtype = np.dtype(space.dtype)
    if (array.dtype.kind == "f") == (dtype.kind == "f"):
        return array
    made = array.astype(dtype)
    if not np.array_equal(made.astype(array.dtype), array):
        raise Mistake(f"column {name!r} is {array.dtype} and not whole numbers; state its space")
    return made


def _mended(dataset: Dataset, episode: Block, findings: Sequence[Finding]) -> Block:
    """What is mended in this episode only, its steps staying."""
    arrays: Arrays = dict(episode.arrays)
    fixes = {one.fix for one in findings}
    if CLIP in fixes:
        for name, part in spaces.parts("action", dataset.action_space).items():
            if isinstance(part, gym_spaces.Box):
                arrays[name] = np.clip(arrays[name], part.low, part.high)
    if COPY in fixes:
        for name in spaces.parts("obs", dataset.obs_space):
            arrays[name] = np.concatenate([arrays[name][:-1], arrays[name][-2:-1]])
    return Block(arrays, episode.lengths, episode.sources)


def _pieces(dataset: Dataset, episode: Block, findings: Sequence[Finding]) -> Iterator[Block]:
    """What is left of an episode: itself, some stretches of it, or nothing."""
    fixes = {one.fix for one in findings}
    if DROP in fixes or not episode.rows:
        return
    good = np.ones(episode.rows, bool)
    if LEAVE_OUT in fixes:
        good = _good(dataset, episode)
    if GIVE_UP in fixes:
        good[-1] = False
    stops = good.copy()  # the last row of a stretch
    stops[:-1] &= ~good[1:]
    if SPLIT in fixes:
        stops |= good & (episode.arrays["discount"] == 0)
    if good.all() and not stops[:-1].any():
        yield episode
        return
    first = 0
    for last in np.flatnonzero(stops).tolist():
        first += int(np.argmax(good[first : last + 1]))
        yield _stretch(episode, first, last + 1)
        first = last + 1


def _good(dataset: Dataset, episode: Block) -> Bool[np.ndarray, "row"]:
    """Rows that are finite, successor and all, with a choice that there is."""
    good = np.ones(episode.rows, bool)
    for name, array in episode.arrays.items():
        if array.dtype.kind != "f" or name.startswith("info/"):
            continue
        finite = np.asarray(np.isfinite(array).reshape(len(array), -1).all(1))
        good &= finite[:-1] & finite[1:] if has_successors(name) else finite
    for name, part in spaces.parts("action", dataset.action_space).items():
        if not isinstance(part, gym_spaces.Box):
            for _, bad, _ in outside(part, episode.arrays[name]):
                good &= ~bad
    return good


def _stretch(episode: Block, first: int, stop: int) -> Block:
    arrays = {
        name: array[first : stop + has_successors(name)] for name, array in episode.arrays.items()
    }
    return Block(arrays, np.array([stop - first], np.int64), episode.sources)
