"""The permutation law of several algorithms' tendencies, block by block.

A *hypothesis* is a way of grouping algorithms: none of a group tends to score higher than another.
Its law is that of runs exchanged within a group and a block. Where the distributions of a group
are equal, the sequence of statistics actually seen is one of equally likely ones, however few the
runs (a group that contains it; Hemerik & Goeman 2018, Test 27). Where only the tendencies are
equal this holds about, because the statistic is studentised; how well is in
``docs/statistics.md``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from sterling.statistics.resample import generator
from sterling.statistics.tendency import below, marks, normal_scores
from sterling.types import Mistake

Group = tuple[int, ...]  # indices of algorithms, ascending
Pair = tuple[int, int]
MOST_HYPOTHESES = 5_000  # all pairs of 8 algorithms make 4,139
TOGETHER = 2048  # rows whose statistics are computed at a time: their arrays stay in the cache
ROUNDING = 1e-9  # sums of the same numbers in another order are the same number


def hypotheses(count: int, pairs: Sequence[Pair]) -> list[tuple[Group, ...]]:
    """Every grouping of ``count`` algorithms under which at least one of ``pairs`` is equal.

    Raises Mistake where there are too many to test each.
    """
    found: dict[tuple[Group, ...], None] = {}
    for partition in _partitions(list(range(count))):
        groups = tuple(sorted(g for part in partition for g in _connected(part, pairs)))
        if groups:
            found[groups] = None
        if len(found) > MOST_HYPOTHESES:
            raise Mistake(
                f"{count} algorithms make too many joint hypotheses; compare at most 8, or say "
                "which pairs matter with pairs="
            )
    return list(found)


def inside(groups: tuple[Group, ...], pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs that the hypothesis calls equal."""
    return [pair for pair in pairs if any(set(pair) <= set(group) for group in groups)]


def _partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """All ways of dividing ``items`` into groups."""
    if not items:
        yield []
        return
    first, *rest = items
    for partition in _partitions(rest):
        yield [[first], *partition]
        for at, part in enumerate(partition):
            yield [*partition[:at], [first, *part], *partition[at + 1 :]]


def _connected(part: list[int], pairs: Sequence[Pair]) -> list[Group]:
    """The pieces of a group, two or more each, that the wanted pairs tie together."""
    pieces = [{one} for one in part]
    for first, second in pairs:
        touched = [piece for piece in pieces if first in piece or second in piece]
        if len(touched) == 2:
            pieces = [piece for piece in pieces if piece not in touched]
            pieces.append(touched[0] | touched[1])
    return [tuple(sorted(piece)) for piece in pieces if len(piece) > 1]


class Law:
    """Statistics of one group under exchanges of its runs; the first row is what was seen."""

    def __init__(self, group: Group, names: Sequence[str], rows: int, key: int):
        self.group, self.rows = group, rows
        self._key = key
        self._words = "compare " + " ".join(names[member] for member in group)
        self._values = np.zeros(0)  # of all runs so far, ascending
        self._dealt = np.zeros((0, rows), np.int8)  # place in the group that each row deals it to
        self._stage = 0

    def advance(self, blocks: Sequence[np.ndarray], exact: bool) -> None:
        """Take each member's next runs. ``exact``: all ways of dealing a pair's runs, in turn."""
        sizes = [block.size for block in blocks]
        places = np.repeat(np.arange(len(blocks), dtype=np.int8), sizes)
        if exact:
            dealt = _all_ways(sizes[0], sizes[1], self.rows)
        else:
            rng = generator(self._key, self._words, self._stage)
            dealt = places[np.argsort(rng.random((places.size, self.rows)), axis=0)]
        dealt[:, 0] = places
        values = np.concatenate([self._values, *blocks])
        order = np.argsort(values, kind="stable")
        self._values, self._dealt = values[order], np.concatenate([self._dealt, dealt])[order]
        self._stage += 1

    def scores(self, pairs: Sequence[Pair]) -> dict[Pair, Float[np.ndarray, "row"]]:
        """How clearly each pair inside the group differs (``tendency.py``), row by row."""
        wanted = inside((self.group,), pairs)
        parts = [self._part(wanted, start) for start in range(0, self.rows, TOGETHER)]
        return {pair: np.concatenate([part[pair] for part in parts]) for pair in wanted}

    def _part(self, pairs: Sequence[Pair], start: int) -> dict[Pair, Float[np.ndarray, "row"]]:
        """The same of a part of the rows."""
        part = self._dealt[:, start : start + TOGETHER]
        dealt = [marks(part == place) for place in range(len(self.group))]
        counts = [below(each, self._values) for each in dealt[:-1]]
        every = below(np.ones((len(part), 1), dealt[0].dtype), self._values)
        counts.append(every - np.sum(counts, 0))  # every run is dealt to one of the group
        made = {}
        for pair in pairs:
            i, j = (self.group.index(member) for member in pair)
            made[pair] = normal_scores(dealt[i], dealt[j], counts[i], counts[j])
        return made


def rows_of(sizes: Sequence[int], interims: int, draws: int) -> tuple[int, bool]:
    """How many sequences a law has, and whether its first block goes through all exchanges.

    ``sizes``: runs of each member in a block. Where a pair's runs can be dealt in few ways, all
    are taken (with several interims, each of them equally often); otherwise ``draws`` at random
    and the one that was seen.
    """
    ways = math.comb(sum(sizes), sizes[0]) if len(sizes) == 2 else draws + 1
    if ways > draws:
        return draws + 1, False
    return (ways if interims == 1 else ways * max(draws // ways, 1)), True


def cross(
    statistic: Float[np.ndarray, "row"], alive: Bool[np.ndarray, "row"], allowed: int
) -> tuple[float, Bool[np.ndarray, "row"]]:
    """The boundary that at most ``allowed`` of the sequences still alive exceed, and which do."""
    ordered = np.sort(statistic[alive])[::-1]
    boundary = float(ordered[allowed]) if allowed < ordered.size else -math.inf
    slack = ROUNDING * float(np.abs(ordered).max(initial=0.0))
    return boundary, alive & (statistic > boundary + slack)


def _all_ways(first: int, second: int, rows: int) -> Int[np.ndarray, "run row"]:
    """All choices of the runs of the first of a pair (0; the second's are 1), repeated."""
    total = first + second
    chosen = np.array(list(itertools.combinations(range(total), first)))
    ways = np.ones((len(chosen), total), np.int8)
    np.put_along_axis(ways, chosen, 0, axis=1)
    return np.resize(ways, (rows, total)).T.copy()
