"""A log's rows through a compiled function, and as tables of episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from sterling.data import Dataset
from sterling.types import Mistake, Record

COLUMNS = 32  # tables have multiples of so many
ROWS = 4096  # passed through a function at a time; one shape, so it is compiled once


def check_rows(count: int) -> None:
    """Raises Mistake for a log without rows."""
    if not count:
        raise Mistake("the log has no rows; there is nothing to judge by")


def over_rows(
    function: Callable[..., Any],
    dataset: Dataset,
    *given: Any,
    index: Int[np.ndarray, "row"] | None = None,
) -> PyTree:
    """``function(*given, Record)`` of the rows ``index`` (all), in blocks; NumPy leaves."""
    rows = np.arange(dataset.rows) if index is None else index
    check_rows(len(rows))
    size = min(ROWS, 1 << (len(rows) - 1).bit_length())
    found = []
    for begin in range(0, len(rows), size):
        some = rows[begin : begin + size]
        filled = np.concatenate([some, np.repeat(some[-1:], size - len(some))])
        made = _compiled(function, given, dataset.transitions(filled))
        found.append(jax.tree.map(np.asarray, made))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(rows)], *found)


@eqx.filter_jit
def _compiled(function: Callable[..., Any], given: tuple[Any, ...], record: Record) -> Any:
    return function(*given, record)


def starts(dataset: Dataset) -> Int[np.ndarray, "episode"]:
    """The first row of every episode that has one."""
    return (np.cumsum(dataset.lengths) - dataset.lengths)[dataset.lengths > 0]


def ends(dataset: Dataset) -> Int[np.ndarray, "episode"]:
    """The last row of every episode that has one."""
    return (np.cumsum(dataset.lengths) - 1)[dataset.lengths > 0]


def episode_of(dataset: Dataset) -> Int[np.ndarray, "row"]:
    """The number of every row's episode, among those that have rows."""
    lengths = dataset.lengths[dataset.lengths > 0]
    return np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)


def bounds(dataset: Dataset, gamma: float) -> tuple[float, float]:
    """What no value of a world with the log's rewards can lie beyond: the smallest and the largest
    for ever, or 0 where the world ends."""
    rewards = [block.arrays["reward"] for block in dataset.blocks()]
    low = min(0.0, *(float(part.min()) for part in rewards))
    high = max(0.0, *(float(part.max()) for part in rewards))
    return low / (1.0 - gamma), high / (1.0 - gamma)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where rows lie in tables ``(episode, time)``."""

    episode: Int[np.ndarray, "row"]
    time: Int[np.ndarray, "row"]
    shape: tuple[int, int]

    @classmethod
    def of(cls, dataset: Dataset) -> Layout:
        """As many columns as the longest episode has steps, and some more: few shapes, so that what
        is made of tables is seldom compiled."""
        episode = episode_of(dataset)
        time = np.arange(dataset.rows) - starts(dataset)[episode]
        columns = -(-(int(time.max()) + 1) // COLUMNS) * COLUMNS
        return cls(episode, time, (int(episode[-1]) + 1, columns))

    def table(self, values: Float[np.ndarray, "row"]) -> Float[np.ndarray, "episode time"]:
        """Row by row into a table; 0 after an episode's end."""
        made = np.zeros(self.shape, np.float32)
        made[self.episode, self.time] = values
        return made
