"""The permutation law of several algorithms' differences, block by block.

A *hypothesis* is a way of grouping algorithms: those of one group have the same distribution of
scores. Under it, runs may be exchanged within a group and a block without changing anything, so
the sequence of statistics actually seen is one of equally likely ones (a group that contains it;
Hemerik & Goeman 2018, Test 27), however few the runs and whatever their distribution.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from sterling.statistics.resample import generator
from sterling.types import Mistake

Group = tuple[int, ...]  # indices of algorithms, ascending
Pair = tuple[int, int]
MOST_HYPOTHESES = 5_000  # all pairs of 8 algorithms make 4,139
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

    def __init__(self, group: Group, names: Sequence[str], per_interim: int, rows: int, key: int):
        self.group, self.n, self.rows = group, per_interim, rows
        self._key = key
        self._words = "compare " + " ".join(names[member] for member in group)
        self._sums = np.zeros((rows, len(group)))
        self._stage = 0

    def advance(self, block: Float[np.ndarray, "member run"], exact: bool) -> None:
        """Take one more block of runs. ``exact``: all ways of dealing a pair's runs, in turn."""
        rng = generator(self._key, self._words, self._stage)
        places = _dealt(self.n, self.rows) if exact else _shuffled(rng, self.rows, block.size)
        places[0] = np.arange(block.size)
        dealt = block.ravel()[places].reshape(self.rows, len(self.group), self.n)
        self._sums += dealt.mean(2)
        self._stage += 1

    def largest(self, pairs: Sequence[Pair]) -> Float[np.ndarray, "row"]:
        """The largest absolute difference over the pairs inside the group."""
        at = [(self.group.index(i), self.group.index(j)) for i, j in inside((self.group,), pairs)]
        first, second = np.array(at).T
        return np.abs(self._sums[:, first] - self._sums[:, second]).max(1)


def rows_of(per_interim: int, interims: int, pair: bool, draws: int) -> tuple[int, bool]:
    """How many sequences a law has, and whether its first block goes through all exchanges.

    Where a pair's runs can be dealt in few ways, all are taken (with several interims, each of
    them equally often); otherwise ``draws`` at random and the one that was seen.
    """
    ways = math.comb(2 * per_interim, per_interim)
    if not pair or ways > draws:
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


def _shuffled(rng: np.random.Generator, rows: int, size: int) -> Int[np.ndarray, "row place"]:
    """Independent uniform permutations."""
    return np.argsort(rng.random((rows, size)), axis=1)


def _dealt(n: int, rows: int) -> Int[np.ndarray, "row place"]:
    """All choices of ``n`` out of ``2 n`` for the first of a pair, repeated up to ``rows``."""
    ways = [
        [*chosen, *sorted(set(range(2 * n)) - set(chosen))]
        for chosen in itertools.combinations(range(2 * n), n)
    ]
    return np.resize(np.array(ways), (rows, 2 * n))
