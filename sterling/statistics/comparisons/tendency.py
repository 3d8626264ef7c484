"""Measure which of two algorithms tends to score higher: a studentised statistic and its floor.

    p = P(first > second) + P(first = second) / 2,    estimated by the share of pairs of runs
    T = (p - 1/2) / s,    s^2 = var(placements of first) / n + var(placements of second) / m

The placement of a run is the share of the other side's runs below it, ties counting half. This is
Brunner & Munzel's statistic (2000, Biometrical Journal 42) with Satterthwaite's degrees of freedom.
Because it is studentised, its permutation law is that of "p = 1/2" even where the two distributions
have different shapes and spreads (Neubert & Brunner 2007; Pauly, Asendorf & Konietschke 2016). Two
additions are made, both because few seeds are the rule here:

* T becomes a normal score z (Wallace 1959), so that few degrees of freedom count. A steady
  learner compared with one that varies has n - 1 of them, an exchange of their runs nearly
  n + m - 2.
* Where the two sides' runs do not overlap, only the counts on either side are known, and the
  chance of a sign test is a floor: as far as was observed, one side's runs do not vary. A learner
  that scores half of its runs below a steady one and half above is *separated* from it in
  2^(1 - n) of all comparisons of n runs, and every rule that decides on separation is wrong as
  often.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float

from sterling.statistics.intervals.estimates import Estimate

MIN_RUNS = 5  # with fewer runs of each nothing is decided
# factor by which the floor may exceed the level: at 5 %, five runs of two can decide
FLOOR_SLACK = 1.25
BISECTIONS = 60
HALF = 0.5

# runs up to which the sums of squared counts are exact in single precision
EXACT_FLOAT32_RUNS = 300

RunIndicators = Float[np.ndarray, "run row"]  # 1 where the row deals a run to one algorithm, else 0
RowValues = Float[np.ndarray, "row"]


def brunner_munzel(
    first: Float[np.ndarray, "run"], second: Float[np.ndarray, "other"]
) -> tuple[float, float]:
    """Return the statistic T and its degrees of freedom.

    T is above 0 where ``first`` tends to score higher. Where no placement varies, as after complete
    separation, s^2 is the smallest value above zero that is possible with so many runs: that of one
    tie.
    """
    values = np.concatenate([first, second])
    order = np.argsort(values, kind="stable")
    mine = exact_indicators(order < first.size)[:, None]
    other = 1.0 - mine
    counts = [count_below(each, values[order]) for each in (mine, other)]
    share, variance, freedom = tendency_moments(mine, other, *counts)
    return float((share[0] - HALF) / math.sqrt(variance[0])), float(freedom[0])


def normal_scores(
    mine: RunIndicators, other: RunIndicators, below_mine: RunIndicators, below_other: RunIndicators
) -> RowValues:
    """Return |z| for every row.

    ``mine`` and ``other`` mark the runs, in ascending order, that a row deals to the first and to
    the second algorithm (a run may belong to neither); ``below_mine`` and ``below_other`` say how
    many runs of each algorithm each run exceeds.
    """
    share, variance, freedom = tendency_moments(mine, other, below_mine, below_other)
    squares = (share - HALF) ** 2 / variance
    return (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(squares / freedom))


def tendency_moments(
    mine: RunIndicators, other: RunIndicators, below_mine: RunIndicators, below_other: RunIndicators
) -> tuple[RowValues, RowValues, RowValues]:
    """Return p, s^2 and the degrees of freedom of every row."""
    n, m = round(float(mine[:, 0].sum())), round(float(other[:, 0].sum()))
    wins, squares = _sum_and_squares(mine, below_other)
    _, others = _sum_and_squares(other, below_mine)
    losses = n * m - wins
    parts = np.stack([
        np.maximum(squares - wins**2 / n, 0.0) / ((n - 1) * n * m**2),
        np.maximum(others - losses**2 / m, 0.0) / ((m - 1) * m * n**2),
    ])  # fmt: skip
    least = 0.25 / (n * m) ** 2
    parts = np.where(parts.sum(0) < least, least, parts)  # smaller values are rounding errors
    total = parts.sum(0)
    freedom = total**2 / (parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (m - 1))
    return wins / (n * m), total, freedom


def exact_indicators(chosen: Bool[np.ndarray, "run *row"]) -> Float[np.ndarray, "run *row"]:
    """Return 1 where chosen, else 0, in a precision in which counts and their squares are exact."""
    return chosen.astype(np.float32 if len(chosen) <= EXACT_FLOAT32_RUNS else np.float64)


def count_below(marked: RunIndicators, values: Float[np.ndarray, "run"]) -> RunIndicators:
    """Count the marked runs below each unmarked run, ties counting half.

    ``values`` ascend. A marked run counts itself as well, as one half or as one.
    """
    counts = np.empty((len(values) + 1, marked.shape[1]), marked.dtype)
    counts[0] = 0.0
    for at in range(len(values)):  # np.cumsum is many times slower along this axis
        np.add(counts[at], marked[at], out=counts[at + 1])
    if (values[1:] > values[:-1]).all():
        return counts[1:]
    left, right = (np.searchsorted(values, values, side) for side in ("left", "right"))
    return (counts[left] + counts[right]) / 2.0


def _sum_and_squares(marked: RunIndicators, counts: RunIndicators) -> tuple[RowValues, RowValues]:
    """Return the sum and the sum of squares of the counts over the marked runs."""
    once, twice = "ij,ij->j", "ij,ij,ij->j"
    sums = np.einsum(once, marked, counts), np.einsum(twice, marked, counts, counts)
    return sums[0].astype(np.float64), sums[1].astype(np.float64)


def sign_test_floor(first: Float[np.ndarray, "run"], second: Float[np.ndarray, "other"]) -> float:
    """Return the chance of the sign test where the two sides are separated; 0 where they overlap.

    Runs that equal a constant side count for neither. Where the test applies both ways, the larger
    chance.
    """
    return max(_sign_test_chance(first, second), _sign_test_chance(second, first))


def _sign_test_chance(steady: np.ndarray, other: np.ndarray) -> float:
    """Return the two-sided chance of so uneven a split of ``other`` by the range of ``steady``."""
    low, high = int((other < steady.min()).sum()), int((other > steady.max()).sum())
    tied = int((other == steady[0]).sum()) if np.ptp(steady) == 0.0 else 0
    if low + high + tied < other.size:
        return 0.0
    ways = sum(math.comb(low + high, count) for count in range(min(low, high) + 1))
    return min(2.0 * ways / 2.0 ** (low + high), 1.0)


def can_decide(runs: int, level: float, others: int = 1) -> bool:
    """Whether ``runs`` of each of ``1 + others`` algorithms could decide anything at ``level``."""
    return runs >= MIN_RUNS and floor_permits(2.0 ** (1 - runs), level, others)


def floor_permits(chance: float, level: float, others: int = 1) -> bool:
    """Whether a floor permits a decision: each of ``others`` may be separated by bad luck."""
    return others * chance <= FLOOR_SLACK * level * (1.0 + 1e-9)


def min_runs_to_decide(level: float, others: int = 1) -> int:
    """Return the fewest runs of each of ``1 + others`` algorithms that could decide."""
    runs = MIN_RUNS
    while not can_decide(runs, level, others):
        runs += 1
    return runs


def probability_estimate(
    first: Float[np.ndarray, "run"],
    second: Float[np.ndarray, "other"],
    *,
    boundary: float,
    verdict: str,
    level: float,
) -> Estimate:
    """Estimate p with an interval that matches a verdict: it excludes 1/2 exactly if there is a
    verdict.

    ``boundary``: the |z| that the decision required, so the interval allows for all looks and
    pairs. The interval is Newcombe's (``improvement_probability.py``), widened where the placements
    vary more than his variance says. ``verdict``: "larger" or "smaller" say how ``first`` compares;
    anything else is no verdict. Where Newcombe's end and the verdict disagree, the verdict sets the
    end: at 1/2, or just beyond it.
    """
    value, n = float(_share_above(first, second)), min(first.size, second.size)
    if n < 2:
        return Estimate(value, None, None, n, "none (one run)", level)
    low, high = _newcombe_interval(first, second, value, boundary)
    if verdict == "larger":
        low = max(low, math.nextafter(HALF, 1.0))
    elif verdict == "smaller":
        high = min(high, math.nextafter(HALF, 0.0))
    else:
        low, high = min(low, HALF), max(high, HALF)
    return Estimate(value, low, high, n, "Newcombe, at the level of the decision", level)


def _share_above(first: np.ndarray, second: np.ndarray) -> np.floating:
    """Return the share of pairs in which ``first`` is above ``second``; ties count half."""
    return ((first[:, None] > second) + HALF * (first[:, None] == second)).mean()


def _newcombe_interval(
    first: np.ndarray, second: np.ndarray, value: float, boundary: float
) -> tuple[float, float]:
    """Return the smallest and largest theta with |p - theta| <= t sqrt(V(theta) widened)."""
    from scipy.special import ndtr, stdtrit

    quantile = float(stdtrit(first.size + second.size - 2, ndtr(boundary)))
    statistic, _ = brunner_munzel(first, second)
    seen = ((value - HALF) / statistic) ** 2 if statistic else 0.0
    expected = _newcombe_variance(value, first.size, second.size)
    wider = max(1.0, seen / expected) if 0.0 < value < 1.0 else 1.0
    ends = []
    for far in (0.0, 1.0):
        inside, outside = value, far
        for _ in range(BISECTIONS):
            theta = (inside + outside) / 2.0
            variance = wider * _newcombe_variance(theta, first.size, second.size)
            is_inside = (value - theta) ** 2 <= quantile**2 * variance
            inside, outside = (theta, outside) if is_inside else (inside, theta)
        ends.append(inside)
    return ends[0], ends[1]


def _newcombe_variance(theta: float, n: int, m: int) -> float:
    """Return Newcombe's V(theta)."""
    share = (1.0 - theta) / (2.0 - theta) + theta / (1.0 + theta)
    return theta * (1.0 - theta) * (1.0 + ((n + m) / 2.0 - 1.0) * share) / (n * m)
