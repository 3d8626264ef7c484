"""Intervals of off-policy estimates. The unit is one episode.

Ratios of probabilities are skewed, and few of many episodes may carry an estimate: an interval
that counts all n of them is far too narrow. The one called ``jackknife`` therefore is

    [V - c(-g) t_v s,  V + c(g) t_v s],    s^2 = (n - 1) / n sum_i (V_{-i} - mean)^2

with V_{-i} the estimate without episode i (Tukey 1958; Efron & Tibshirani 1993, chapter 11), t_v
of v = effective sample size - 1 degrees of freedom, and arms stretched for the skewness g of the
pseudo-values n V - (n - 1) V_{-i} as ``statistics/mean.py`` does for as many runs as effective
episodes. How often it holds: benchmarks/results/offpolicy.md. It cannot know of paths that the
judged policy takes and nobody logged.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from sterling.equations import importance as equations
from sterling.statistics import Estimate, estimate
from sterling.statistics import mean as of_mean
from sterling.statistics.aggregate import Aggregate, Weights
from sterling.statistics.scores import Sample

OF_MEAN = ("t", "skew-t")
DRAWS = 2000


def of_sums(
    sums: equations.Sums,
    effective: float,
    *,
    level: float = 0.95,
    interval: str = "jackknife",
    key: int = 0,
) -> Estimate:
    """The estimate of tables A and B (``equations/importance.py``), its interval over episodes.

    ``effective``: effective sample size. ``interval``: "jackknife"; "t" and "skew-t" of the mean of
    what each episode contributes (``equations.pulls``); "bootstrap", "bca", "bootstrap-se" resample
    episodes (``statistics/bootstrap.py``).
    """
    terms, weights = (np.asarray(x, np.float64) for x in sums)
    if interval == "jackknife" and len(terms) > 1:
        return _jackknife(terms, weights, effective, level)
    pulls = np.asarray(equations.pulls(sums), np.float64)
    if interval in (*OF_MEAN, "none") or len(pulls) == 1:
        return estimate(pulls, level=level, interval="t" if len(pulls) == 1 else interval)

    def weighted(sample: Sample, counts: Weights) -> Float[np.ndarray, "draw"]:
        return _ratios(counts @ terms, counts @ weights)

    statistic = Aggregate("ratio", weighted)
    return estimate(pulls, statistic, level=level, interval=interval, key=key, draws=DRAWS)


def spread(
    value: float,
    replicates: Float[np.ndarray, "replicate"],
    *,
    n: int,
    level: float,
    what: str,
    freedom: int,
) -> Estimate:
    """An interval of ``n`` episodes from a number and its resampled likes: value -+ t s, s their
    deviation (Efron & Tibshirani 1993, chapter 12), Student's t of ``freedom``; s^2 grows by n /
    (n - 1), which resampling hides."""
    from scipy.special import stdtrit  # slow to import

    if n < 2:
        return Estimate(value, None, None, n, "none (one episode)", level)
    error = float(replicates.std(ddof=1)) * math.sqrt(n / (n - 1))
    half = float(stdtrit(max(freedom, 1), 0.5 + level / 2)) * error
    return Estimate(value, value - half, value + half, n, what, level)


def _jackknife(
    terms: Float[np.ndarray, "episode column"],
    weights: Float[np.ndarray, "episode column"],
    effective: float,
    level: float,
) -> Estimate:
    from scipy.special import stdtrit

    n, top, bottom = len(terms), terms.sum(0), weights.sum(0)
    value = float(_ratios(top, bottom))
    rest = np.maximum(bottom[None] - weights, 0.0)
    without = _ratios(top[None] - terms, np.where(rest > 1e-9 * bottom[None], rest, 0.0))
    away = -(n - 1) * (without - without.mean())
    worth = max(effective, 2.0)
    second = float((away**2).mean())
    error = math.sqrt(second / (n - 1))
    skewness = float((away**3).mean()) / second**1.5 if second > 0.0 else 0.0
    largest = max(worth - 2.0, 0.5) / math.sqrt(worth - 1.0)
    low, high = of_mean.arms(worth, np.asarray(max(min(skewness / largest, 1.0), -1.0)))
    half = float(stdtrit(worth - 1.0, 0.5 + level / 2)) * error
    ends = value - float(low) * half, value + float(high) * half
    return Estimate(value, *ends, n, "jackknife", level)


def _ratios(
    top: Float[np.ndarray, "*rest column"], bottom: Float[np.ndarray, "*rest column"]
) -> Float[np.ndarray, "*rest"]:
    """Sums of ratios over columns; 0 for a column without weight."""
    some = bottom > 0.0
    return np.asarray((np.where(some, top, 0.0) / np.where(some, bottom, 1.0)).sum(-1))
