"""Observations and actions as numbered cells, to count what was visited and to find crossings.

Whole numbers are cells as they are. Real numbers are standardised and cut into boxes of half a
standard deviation, along at most six directions of an observation and three of an action: the
axes, or, where there are more, random ones (the same for every dataset of that width), since in
many dimensions every row would be a cell of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Shaped, UInt64

from sterling.data import spaces
from sterling.data.columns import Arrays
from sterling.data.dataset import Dataset

WIDTH = 0.5  # standard deviations
DIRECTIONS = {"obs": 6, "action": 3}
STARTS = {"obs": 0, "action": 0x2545F4914F6CDD1D}  # of hashes; equal ones would cancel out
AT_ONCE = 1 << 22  # numbers worked on at a time


class Cells:
    """The cells of one dataset, by which others can be counted as well."""

    def __init__(self, dataset: Dataset):
        self._names = {
            "obs": list(spaces.parts("obs", dataset.obs_space)),
            "action": list(spaces.parts("action", dataset.action_space)),
        }
        self._boxes: dict[str, _Boxes] = {}
        block = next(dataset.blocks(), None)
        for kind, names in self._names.items():
            if block is None or all(block.arrays[name].dtype.kind in "iub" for name in names):
                continue  # whole numbers
            self._boxes[kind] = _Boxes(_flat(block.arrays, names), DIRECTIONS[kind])

    def each(self, dataset: Dataset) -> Iterator[tuple[UInt64[np.ndarray, "row"], ...]]:
        """The cells of the rows' observations, and of both observations and actions, in blocks."""
        for block in dataset.blocks():
            rows = np.arange(block.rows) + np.repeat(np.arange(len(block.lengths)), block.lengths)
            obs = self._of("obs", block.arrays)[rows]
            yield obs, _mixed(obs ^ _mixed(self._of("action", block.arrays)))

    def _of(self, kind: str, arrays: Arrays) -> UInt64[np.ndarray, "entry"]:
        names = self._names[kind]
        count = len(arrays[names[0]])
        width = sum(arrays[name][:1].size for name in names)
        step = max(AT_ONCE // max(width, 1), 1)
        found = [np.zeros(0, np.uint64)]
        for low in range(0, count, step):
            part = {name: arrays[name][low : low + step] for name in names}
            boxes = self._boxes.get(kind)
            flat = _flat(part, names)
            whole = flat.astype(np.int64) if boxes is None else boxes.of(flat)
            found.append(_hashed(whole, STARTS[kind]))
        return np.concatenate(found)


class _Boxes:
    """Boxes of ``WIDTH`` standard deviations of a sample."""

    def __init__(self, sample: Float[np.ndarray, "entry width"], directions: int):
        self._middle, self._scale = sample.mean(0), sample.std(0) + 1e-8
        width = sample.shape[1]
        self._turn: np.ndarray | None = None
        if width > directions:
            random = np.random.default_rng(width).normal(size=(width, directions))
            self._turn = np.linalg.qr(random)[0]

    def of(self, flat: Float[np.ndarray, "entry width"]) -> np.ndarray:
        """The box of every entry, one whole number per direction."""
        scaled = (flat - self._middle) / self._scale
        turned = scaled if self._turn is None else scaled @ self._turn
        return np.floor(np.nan_to_num(turned) / WIDTH).astype(np.int64)


def _flat(arrays: Arrays, names: list[str]) -> Shaped[np.ndarray, "entry width"]:
    columns = [arrays[name].reshape(len(arrays[name]), -1) for name in names]
    return np.concatenate(columns, 1).astype(np.float64)


def _hashed(whole: np.ndarray, start: int) -> UInt64[np.ndarray, "entry"]:
    made = np.full(len(whole), start, np.uint64)
    for column in whole.T:
        made = _mixed(made ^ column.astype(np.uint64))
    return made


def _mixed(words: UInt64[np.ndarray, "entry"]) -> UInt64[np.ndarray, "entry"]:
    """SplitMix64's finaliser (Steele 2014): one-to-one, every bit reaches every other."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
