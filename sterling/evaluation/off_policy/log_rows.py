"""Apply compiled functions to a dataset's rows, and arrange rows in tables of episodes."""

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

COLUMN_MULTIPLE = 32  # the number of columns of tables is a multiple of this
ROWS_PER_CALL = 4096  # rows per call; one shape, so that a function is compiled once


def check_not_empty(count: int) -> None:
    """Raise Mistake for a dataset without rows."""
    if not count:
        raise Mistake("the dataset has no rows; use one that has")


def map_rows(
    function: Callable[..., Any],
    dataset: Dataset,
    *given: Any,
    index: Int[np.ndarray, "row"] | None = None,
) -> PyTree:
    """Apply ``function(*given, Record)`` to the rows ``index`` (None: all) in blocks; return NumPy
    arrays."""
    rows = np.arange(dataset.rows) if index is None else index
    check_not_empty(len(rows))
    size = min(ROWS_PER_CALL, 1 << (len(rows) - 1).bit_length())
    found = []
    for begin in range(0, len(rows), size):
        some = rows[begin : begin + size]
        filled = np.concatenate([some, np.repeat(some[-1:], size - len(some))])
        made = _call_compiled(function, given, dataset.transitions(filled))
        found.append(jax.tree.map(np.asarray, made))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(rows)], *found)


@eqx.filter_jit
def _call_compiled(function: Callable[..., Any], given: tuple[Any, ...], record: Record) -> Any:
    return function(*given, record)


def first_rows(dataset: Dataset) -> Int[np.ndarray, "episode"]:
    """Return the first row of every non-empty episode."""
    return (np.cumsum(dataset.lengths) - dataset.lengths)[dataset.lengths > 0]


def last_rows(dataset: Dataset) -> Int[np.ndarray, "episode"]:
    """Return the last row of every non-empty episode."""
    return (np.cumsum(dataset.lengths) - 1)[dataset.lengths > 0]


def episode_numbers(dataset: Dataset) -> Int[np.ndarray, "row"]:
    """Return the episode number of every row, counting non-empty episodes."""
    lengths = dataset.lengths[dataset.lengths > 0]
    return np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)


def value_bounds(dataset: Dataset, gamma: float) -> tuple[float, float]:
    """Return bounds of all values in a world with the dataset's rewards: the smallest and the
    largest reward for ever, or 0 where the world terminates."""
    rewards = [block.arrays["reward"] for block in dataset.blocks()]
    low = min(0.0, *(float(part.min()) for part in rewards))
    high = max(0.0, *(float(part.max()) for part in rewards))
    return low / (1.0 - gamma), high / (1.0 - gamma)


def resample_counts(
    episodes: int, members: int, random: np.random.Generator
) -> Float[np.ndarray, "member episode"]:
    """Draw how often each member's bootstrap sample contains each episode; a single member, or a
    single episode, counts once."""
    counts = random.multinomial(episodes, np.full(episodes, 1 / episodes), members).astype(float)
    return np.ones((members, episodes)) if members == 1 or episodes == 1 else counts


@dataclasses.dataclass(frozen=True)
class EpisodeLayout:
    """The positions of rows in tables ``(episode, time)``."""

    episode: Int[np.ndarray, "row"]
    time: Int[np.ndarray, "row"]
    shape: tuple[int, int]

    @classmethod
    def from_dataset(cls, dataset: Dataset) -> EpisodeLayout:
        """Create the layout, with as many columns as the longest episode has steps, rounded up to a
        multiple of ``COLUMN_MULTIPLE``, so that few shapes are compiled."""
        episode = episode_numbers(dataset)
        time = np.arange(dataset.rows) - first_rows(dataset)[episode]
        columns = -(-(int(time.max()) + 1) // COLUMN_MULTIPLE) * COLUMN_MULTIPLE
        return cls(episode, time, (int(episode[-1]) + 1, columns))

    def table(self, values: Float[np.ndarray, "row"]) -> Float[np.ndarray, "episode time"]:
        """Arrange values of rows in a table; 0 after an episode's end."""
        made = np.zeros(self.shape, np.float32)
        made[self.episode, self.time] = values
        return made
