"""The permutation law of several algorithms' tendencies, block by block.

A *hypothesis* is a grouping of algorithms: within a group, none tends to score higher than another.
Its law is that of runs exchanged within a group and a block. Where the distributions of a group are
equal, the observed sequence of statistics is one of equally likely sequences, however few the runs
(they form a group that contains it; Hemerik & Goeman 2018, Test 27). Where only the tendencies are
equal this holds approximately, because the statistic is studentised; ``docs/statistics.md``
measures how well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from sterling.statistics.comparisons.tendency import count_below, exact_indicators, normal_scores
from sterling.statistics.intervals.stratified_resampling import random_generator
from sterling.types import Mistake

Group = tuple[int, ...]  # indices of algorithms, ascending
Pair = tuple[int, int]
MAX_HYPOTHESES = 5_000  # all pairs of 8 algorithms make 4,139
ROWS_PER_CHUNK = 2048  # so many rows at a time keep their arrays in the CPU cache
RELATIVE_ROUNDING = 1e-9  # sums that differ only in the order of addition count as equal


def joint_hypotheses(count: int, pairs: Sequence[Pair]) -> list[tuple[Group, ...]]:
    """Return every grouping of ``count`` algorithms under which at least one of ``pairs`` is equal.

    Raises Mistake where there are too many to test.
    """
    found: dict[tuple[Group, ...], None] = {}
    for partition in _partitions(list(range(count))):
        groups = tuple(sorted(g for part in partition for g in _connected_groups(part, pairs)))
        if groups:
            found[groups] = None
        if len(found) > MAX_HYPOTHESES:
            raise Mistake(
                f"{count} algorithms make too many joint hypotheses; compare at most 8, or say "
                "which pairs matter with pairs="
            )
    return list(found)


def pairs_within_groups(groups: tuple[Group, ...], pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs that the hypothesis calls equal."""
    return [pair for pair in pairs if any(set(pair) <= set(group) for group in groups)]


def _partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """Yield all ways of dividing ``items`` into groups."""
    if not items:
        yield []
        return
    first, *rest = items
    for partition in _partitions(rest):
        yield [[first], *partition]
        for at, part in enumerate(partition):
            yield [*partition[:at], [first, *part], *partition[at + 1 :]]


def _connected_groups(part: list[int], pairs: Sequence[Pair]) -> list[Group]:
    """Return the parts of a group, two or more members each, that ``pairs`` connect."""
    pieces = [{one} for one in part]
    for first, second in pairs:
        touched = [piece for piece in pieces if first in piece or second in piece]
        if len(touched) == 2:
            pieces = [piece for piece in pieces if piece not in touched]
            pieces.append(touched[0] | touched[1])
    return [tuple(sorted(piece)) for piece in pieces if len(piece) > 1]


class PermutationLaw:
    """A group's statistics under exchanges of its runs; the first row is the observed one."""

    def __init__(self, group: Group, names: Sequence[str], rows: int, key: int):
        self.group, self.rows = group, rows
        self._key = key
        self._words = "compare " + " ".join(names[member] for member in group)
        self._values = np.zeros(0)  # of all runs so far, ascending
        self._dealt = np.zeros((0, rows), np.int8)  # per row, the member that gets the run
        self._stage = 0

    def advance(self, blocks: Sequence[np.ndarray], exact: bool) -> None:
        """Add each member's next runs. ``exact``: enumerate all ways of dealing a pair's runs."""
        sizes = [block.size for block in blocks]
        places = np.repeat(np.arange(len(blocks), dtype=np.int8), sizes)
        if exact:
            dealt = _all_exchanges(sizes[0], sizes[1], self.rows)
        else:
            rng = random_generator(self._key, self._words, self._stage)
            dealt = places[np.argsort(rng.random((places.size, self.rows)), axis=0)]
        dealt[:, 0] = places
        values = np.concatenate([self._values, *blocks])
        order = np.argsort(values, kind="stable")
        self._values, self._dealt = values[order], np.concatenate([self._dealt, dealt])[order]
        self._stage += 1

    def scores(self, pairs: Sequence[Pair]) -> dict[Pair, Float[np.ndarray, "row"]]:
        """Return |z| of each pair inside the group (``tendency.py``) for every row."""
        wanted = pairs_within_groups((self.group,), pairs)
        parts = [self._part(wanted, start) for start in range(0, self.rows, ROWS_PER_CHUNK)]
        return {pair: np.concatenate([part[pair] for part in parts]) for pair in wanted}

    def _part(self, pairs: Sequence[Pair], start: int) -> dict[Pair, Float[np.ndarray, "row"]]:
        """Return |z| of each pair for the rows of one chunk."""
        part = self._dealt[:, start : start + ROWS_PER_CHUNK]
        dealt = [exact_indicators(part == place) for place in range(len(self.group))]
        counts = [count_below(each, self._values) for each in dealt[:-1]]
        every = count_below(np.ones((len(part), 1), dealt[0].dtype), self._values)
        counts.append(every - np.sum(counts, 0))  # every run belongs to one member
        made = {}
        for pair in pairs:
            i, j = (self.group.index(member) for member in pair)
            made[pair] = normal_scores(dealt[i], dealt[j], counts[i], counts[j])
        return made


def sequence_count(sizes: Sequence[int], interims: int, draws: int) -> tuple[int, bool]:
    """Return how many sequences a law has, and whether its first block enumerates all exchanges.

    ``sizes``: runs of each member in a block. Where a pair's runs can be dealt in few ways, all are
    taken (with several interims, each equally often); otherwise ``draws`` random ones and the
    observed one.
    """
    ways = math.comb(sum(sizes), sizes[0]) if len(sizes) == 2 else draws + 1
    if ways > draws:
        return draws + 1, False
    return (ways if interims == 1 else ways * max(draws // ways, 1)), True


def find_boundary(
    statistic: Float[np.ndarray, "row"], alive: Bool[np.ndarray, "row"], allowed: int
) -> tuple[float, Bool[np.ndarray, "row"]]:
    """Return the boundary that at most ``allowed`` living sequences exceed, and which do."""
    ordered = np.sort(statistic[alive])[::-1]
    boundary = float(ordered[allowed]) if allowed < ordered.size else -math.inf
    slack = RELATIVE_ROUNDING * float(np.abs(ordered).max(initial=0.0))
    return boundary, alive & (statistic > boundary + slack)


def _all_exchanges(first: int, second: int, rows: int) -> Int[np.ndarray, "run row"]:
    """Return all ways to choose the first one's runs (0; the second's are 1), repeated to
    ``rows``."""
    total = first + second
    chosen = np.array(list(itertools.combinations(range(total), first)))
    ways = np.ones((len(chosen), total), np.int8)
    np.put_along_axis(ways, chosen, 0, axis=1)
    return np.resize(ways, (rows, total)).T.copy()
