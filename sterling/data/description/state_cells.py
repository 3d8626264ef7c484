"""Discretise observations and actions into numbered cells.

Cells are counted for coverage, and compared to find states that several episodes visit. Integers
are used as they are. Real numbers are standardised and cut into boxes half a standard deviation
wide, along at most six directions of an observation and three of an action. The directions are
the axes; where there are more axes, they are random (the same for every dataset of that width),
because with many dimensions every row would get a cell of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Shaped, UInt64

from sterling.data import space_json
from sterling.data.dataset import Dataset
from sterling.data.episode_columns import Arrays

CELL_WIDTH = 0.5  # standard deviations
DIRECTION_COUNTS = {"obs": 6, "action": 3}
HASH_STARTS = {"obs": 0, "action": 0x2545F4914F6CDD1D}  # equal starts would cancel out
CHUNK_NUMBERS = 1 << 22  # numbers processed at a time


class Discretiser:
    """The grid of cells fitted to one dataset; other datasets can be counted on it too."""

    def __init__(self, dataset: Dataset):
        self._names = {
            "obs": list(space_json.column_spaces("obs", dataset.obs_space)),
            "action": list(space_json.column_spaces("action", dataset.action_space)),
        }
        self._boxes: dict[str, _BoxGrid] = {}
        block = next(dataset.blocks(), None)
        for kind, names in self._names.items():
            if block is None or all(block.arrays[name].dtype.kind in "iub" for name in names):
                continue  # integers are cells already
            self._boxes[kind] = _BoxGrid(
                _flatten_columns(block.arrays, names), DIRECTION_COUNTS[kind]
            )

    def cells_by_block(self, dataset: Dataset) -> Iterator[tuple[UInt64[np.ndarray, "row"], ...]]:
        """Yield for each block two arrays of cell numbers, one entry per row: the cell of the
        observation, and the cell of the observation and action together."""
        for block in dataset.blocks():
            rows = np.arange(block.rows) + np.repeat(np.arange(len(block.lengths)), block.lengths)
            obs = self._cells_of("obs", block.arrays)[rows]
            yield obs, _mix_bits(obs ^ _mix_bits(self._cells_of("action", block.arrays)))

    def _cells_of(self, kind: str, arrays: Arrays) -> UInt64[np.ndarray, "entry"]:
        names = self._names[kind]
        count = len(arrays[names[0]])
        width = sum(arrays[name][:1].size for name in names)
        step = max(CHUNK_NUMBERS // max(width, 1), 1)
        found = [np.zeros(0, np.uint64)]
        for low in range(0, count, step):
            part = {name: arrays[name][low : low + step] for name in names}
            boxes = self._boxes.get(kind)
            flat = _flatten_columns(part, names)
            whole = flat.astype(np.int64) if boxes is None else boxes.assign(flat)
            found.append(_hash_cells(whole, HASH_STARTS[kind]))
        return np.concatenate(found)


class _BoxGrid:
    """A grid of boxes, each ``CELL_WIDTH`` standard deviations of a sample wide."""

    def __init__(self, sample: Float[np.ndarray, "entry width"], directions: int):
        self._mean, self._scale = sample.mean(0), sample.std(0) + 1e-8
        width = sample.shape[1]
        self._rotation: np.ndarray | None = None
        if width > directions:
            random = np.random.default_rng(width).normal(size=(width, directions))
            self._rotation = np.linalg.qr(random)[0]

    def assign(self, flat: Float[np.ndarray, "entry width"]) -> np.ndarray:
        """Return the box of every entry: one integer per direction."""
        scaled = (flat - self._mean) / self._scale
        rotated = scaled if self._rotation is None else scaled @ self._rotation
        return np.floor(np.nan_to_num(rotated) / CELL_WIDTH).astype(np.int64)


def _flatten_columns(arrays: Arrays, names: list[str]) -> Shaped[np.ndarray, "entry width"]:
    columns = [arrays[name].reshape(len(arrays[name]), -1) for name in names]
    return np.concatenate(columns, 1).astype(np.float64)


def _hash_cells(whole: np.ndarray, start: int) -> UInt64[np.ndarray, "entry"]:
    made = np.full(len(whole), start, np.uint64)
    for column in whole.T:
        made = _mix_bits(made ^ column.astype(np.uint64))
    return made


def _mix_bits(words: UInt64[np.ndarray, "entry"]) -> UInt64[np.ndarray, "entry"]:
    """Apply SplitMix64's finaliser (Steele 2014): one-to-one, and every input bit changes every
    output bit."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
