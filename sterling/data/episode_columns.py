"""Store episodes in columns: one array per part of the experience, with episodes end to end.

Columns named ``obs``, ``obs/PART`` and ``info/NAME`` have one entry per *observation*: an episode
of n steps has n + 1 observations, and the last one is the true successor of its last step, whether
the episode terminated or was truncated. All other columns (``action``, ``action/PART``, ``reward``,
``discount``, ``extra/NAME``) have one entry per *row*; a row is one step. So the successor of row
r of episode e is observation r + e + 1, no two episodes share an observation, and nothing is
stored twice.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from sterling.data.dataset_metadata import Facts
from sterling.data.space_json import Space, column_spaces, space_to_json, to_32_bits
from sterling.data.wide_columns import find_rounded
from sterling.types import Mistake

Arrays = dict[str, np.ndarray]
BLOCK_ROWS = 1 << 17  # rows processed at a time


def is_per_observation(name: str) -> bool:
    """Whether a column has one entry per observation rather than per row."""
    return name == "obs" or name.startswith(("obs/", "info/"))


@dataclasses.dataclass(frozen=True)
class Block:
    """Whole episodes in columns; numbers are converted to the machine's byte order."""

    arrays: Arrays
    lengths: Int[np.ndarray, "episode"]  # steps
    sources: Int[np.ndarray, "episode"]  # the number of each episode's source

    def __post_init__(self) -> None:
        if all(array.dtype.isnative for array in self.arrays.values()):
            return
        native = {
            name: array.astype(array.dtype.newbyteorder("="), copy=False)
            for name, array in self.arrays.items()
        }
        object.__setattr__(self, "arrays", native)

    @functools.cached_property
    def rounded(self) -> frozenset[str]:
        """Return the names of :func:`find_rounded`; its lines are printed the first time."""
        return find_rounded(self.arrays)

    def narrow(self, arrays: Arrays) -> Arrays:
        """Return rows of these columns with at most 32 bits. Of ids and time stamps that loses
        digits, which a line says once (``wide_columns.py``)."""
        return {
            name: to_32_bits(x.astype(np.float32) if name in self.rounded else x)
            for name, x in arrays.items()
        }

    @property
    def rows(self) -> int:
        """Return the number of steps of all episodes."""
        return int(self.lengths.sum())

    @property
    def begins(self) -> Int[np.ndarray, "episode"]:
        """Return each episode's first row; its first observation is at ``begins[e] + e``."""
        return np.cumsum(self.lengths) - self.lengths

    def where(self, rows: Int[np.ndarray, "..."]) -> tuple[Any, Any]:
        """Return the episode of each row, and the step within that episode."""
        episode = np.searchsorted(np.cumsum(self.lengths), rows, side="right")
        return episode, rows - self.begins[episode]

    def cut(self, first: int, stop: int) -> Block:
        """Return episodes ``first`` to ``stop`` (exclusive), as views."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        low, high = int(ends[first]), int(ends[stop])
        arrays = {
            name: array[low + first : high + stop] if is_per_observation(name) else array[low:high]
            for name, array in self.arrays.items()
        }
        return Block(arrays, self.lengths[first:stop], self.sources[first:stop])

    def checked(self) -> Block:
        """Return the block itself; raise Mistake naming a column whose length does not fit the
        episodes."""
        for name, array in self.arrays.items():
            check_column_length(name, len(array), self.lengths)
        return self


def check_column_length(name: str, count: int, lengths: Int[np.ndarray, "episode"]) -> None:
    """Raise Mistake if a column of ``count`` entries does not fit episodes of these lengths."""
    rows = int(lengths.sum())
    needed = rows + len(lengths) * is_per_observation(name)
    if count != needed:
        raise Mistake(
            f"Column {name!r} has {count} entries, but {len(lengths)} episodes with {rows} steps "
            f"together need {needed}. Restore the file."
        )


@dataclasses.dataclass(frozen=True)
class Stream:
    """A dataset that is read piece by piece: its spaces and facts, and an iterator of blocks."""

    obs_space: Space
    action_space: Space
    facts: Facts
    blocks: Iterator[Block]
    bytes: int  # of all columns, about
    hash: str = ""  # expected hash of the content, if the file states one


def check_columns(block: Block, obs_space: Space, action_space: Space) -> None:
    """Raise Mistake if a block lacks a column of its spaces, rewards or discounts."""
    expected = {**column_spaces("obs", obs_space), **column_spaces("action", action_space)}
    for name in (*expected, "reward", "discount"):
        if name not in block.arrays:
            there = ", ".join(block.arrays)
            raise Mistake(f"The dataset lacks the column {name!r}. It has {there}.")


def block_ranges(
    lengths: Int[np.ndarray, "episode"], rows: int = BLOCK_ROWS
) -> Iterator[tuple[int, int]]:
    """Yield the first and the stop episode of successive blocks of about ``rows`` steps; a block
    has at least one episode."""
    ends, first = np.cumsum(lengths), 0
    while first < len(lengths):
        begin = ends[first] - lengths[first]
        stop = max(int(np.searchsorted(ends, begin + rows, "right")), first + 1)
        yield first, stop
        first = stop


def row_numbers(index: Any, count: int) -> Int[np.ndarray, "..."]:
    """Return row numbers from an index that is row numbers or a mask over ``count`` rows."""
    asked = np.asarray(index)
    if asked.dtype.kind == "b":
        if asked.shape != (count,):
            raise Mistake(
                f"A mask needs one boolean for each of the {count} rows; got shape {asked.shape}."
            )
        return np.flatnonzero(asked)
    if not asked.size:  # an empty list would become floats
        return asked.astype(np.int64)
    if asked.dtype.kind not in "iu":
        raise Mistake(f"Index rows by integers or a boolean mask; got {asked.dtype}.")
    if asked.min() < 0 or asked.max() >= count:
        raise Mistake(
            f"Row numbers lie between 0 and {count - 1}; got {asked.min()} to {asked.max()}."
        )
    return asked


def join_blocks(blocks: Iterable[Block]) -> Block:
    """Concatenate blocks into one. Raises Mistake if their columns differ."""
    whole = list(blocks)
    if not whole:
        raise Mistake("There is no episode to read. Give a file with at least one episode.")
    names = list(whole[0].arrays)
    for one in whole:
        if set(one.arrays) != set(names):
            lacking = sorted(set(one.arrays) ^ set(names))
            raise Mistake(
                f"Some episodes have the columns {', '.join(lacking)} and others do not. Give all "
                "episodes the same columns."
            )
    if len(whole) == 1:
        return whole[0]
    arrays = {name: np.concatenate([one.arrays[name] for one in whole]) for name in names}
    lengths = np.concatenate([one.lengths for one in whole])
    return Block(arrays, lengths, np.concatenate([one.sources for one in whole]))


class ContentHash:
    """Compute the hash of a dataset's content, block by block.

    It covers the spaces, the episodes' lengths and every number with its type, but not the
    provenance: equal experience has an equal hash in every file format.
    """

    def __init__(self, obs_space: Space, action_space: Space):
        self._spaces = json.dumps(
            [space_to_json(obs_space), space_to_json(action_space)], sort_keys=True
        )
        self._columns: dict[str, Any] = {}

    def add(self, block: Block) -> Block:
        """Hash a block of episodes, and return the block."""
        parts = {**block.arrays, "lengths": block.lengths.astype(np.int64)}
        for name, array in parts.items():
            known = f"{name} {array.dtype.str} {array.shape[1:]}"
            digest = self._columns.setdefault(known, hashlib.sha256())
            if array.size:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return block

    def add_each(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the blocks unchanged, and hash each one as it passes."""
        return map(self.add, blocks)

    @property
    def value(self) -> str:
        """Return the SHA-256 of everything hashed so far, as 64 hexadecimal digits."""
        lines = [f"{known} {digest.hexdigest()}" for known, digest in self._columns.items()]
        return hashlib.sha256("\n".join([self._spaces, *sorted(lines)]).encode()).hexdigest()
