"""Columns of episodes: one array per part of the experience, episodes end to end.

Columns named ``obs``, ``obs/PART`` and ``info/NAME`` have one entry per *observation*: an episode
of n steps has n + 1 of them, the last of which is the true successor of its last step, whether it
ended or was cut. All others (``action``, ``action/PART``, ``reward``, ``discount``,
``extra/NAME``) have one entry per *row*, which is a step. So the successor of row r of episode e
is observation r + e + 1, no two episodes share one, and nothing is stored twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from sterling.data.facts import Facts
from sterling.data.spaces import Space, to_json
from sterling.types import Mistake

Arrays = dict[str, np.ndarray]
BLOCK = 1 << 17  # rows that are worked on at a time


def has_successors(name: str) -> bool:
    """Whether a column has one entry per observation rather than per row."""
    return name == "obs" or name.startswith(("obs/", "info/"))


@dataclasses.dataclass(frozen=True)
class Block:
    """Some whole episodes; their numbers are in the machine's byte order, however they came."""

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

    @property
    def rows(self) -> int:
        """Steps of all episodes."""
        return int(self.lengths.sum())

    @property
    def begins(self) -> Int[np.ndarray, "episode"]:
        """Each episode's first row; its first observation is at ``begins[e] + e``."""
        return np.cumsum(self.lengths) - self.lengths

    def where(self, rows: Int[np.ndarray, "..."]) -> tuple[Any, Any]:
        """Episode and step within it of rows."""
        episode = np.searchsorted(np.cumsum(self.lengths), rows, side="right")
        return episode, rows - self.begins[episode]

    def cut(self, first: int, stop: int) -> Block:
        """Episodes ``first`` to ``stop``, as views."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        low, high = int(ends[first]), int(ends[stop])
        arrays = {
            name: array[low + first : high + stop] if has_successors(name) else array[low:high]
            for name, array in self.arrays.items()
        }
        return Block(arrays, self.lengths[first:stop], self.sources[first:stop])

    def checked(self) -> Block:
        """Itself; raises Mistake naming the column whose length does not fit the episodes."""
        for name, array in self.arrays.items():
            check_length(name, len(array), self.lengths)
        return self


def check_length(name: str, count: int, lengths: Int[np.ndarray, "episode"]) -> None:
    """Raises Mistake where a column of ``count`` entries does not fit episodes."""
    rows = int(lengths.sum())
    needed = rows + len(lengths) * has_successors(name)
    if count != needed:
        raise Mistake(
            f"column {name!r} has {count} entries where {needed} belong to {len(lengths)} episodes "
            f"of {rows} steps"
        )


@dataclasses.dataclass(frozen=True)
class Stream:
    """Experience that is being read: what is known beforehand, and blocks as they come."""

    obs_space: Space
    action_space: Space
    facts: Facts
    blocks: Iterator[Block]
    bytes: int  # of all columns, about
    hash: str = ""  # that the content must have, where the file says so


def joined(blocks: Iterable[Block]) -> Block:
    """Blocks end to end. Raises Mistake where their columns differ."""
    whole = list(blocks)
    if not whole:
        raise Mistake("there is no episode")
    names = list(whole[0].arrays)
    for one in whole:
        if set(one.arrays) != set(names):
            lacking = sorted(set(one.arrays) ^ set(names))
            raise Mistake(f"some episodes have the columns {', '.join(lacking)} and others not")
    if len(whole) == 1:
        return whole[0]
    arrays = {name: np.concatenate([one.arrays[name] for one in whole]) for name in names}
    lengths = np.concatenate([one.lengths for one in whole])
    return Block(arrays, lengths, np.concatenate([one.sources for one in whole]))


class Digest:
    """The hash of a dataset's content, fed block by block.

    It covers the spaces, the episodes' lengths and every number with its type, but not where they
    came from: equal experience has an equal hash, whatever file it lay in.
    """

    def __init__(self, obs_space: Space, action_space: Space):
        self._spaces = json.dumps([to_json(obs_space), to_json(action_space)], sort_keys=True)
        self._columns: dict[str, Any] = {}

    def add(self, block: Block) -> Block:
        """Take in some episodes, which are handed back."""
        parts = {**block.arrays, "lengths": block.lengths.astype(np.int64)}
        for name, array in parts.items():
            known = f"{name} {array.dtype.str} {array.shape[1:]}"
            digest = self._columns.setdefault(known, hashlib.sha256())
            if array.size:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return block

    def passing(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """The blocks, each taken in as it goes by."""
        return map(self.add, blocks)

    @property
    def value(self) -> str:
        """64 hexadecimal digits."""
        lines = [f"{known} {digest.hexdigest()}" for known, digest in self._columns.items()]
        return hashlib.sha256("\n".join([self._spaces, *sorted(lines)]).encode()).hexdigest()
