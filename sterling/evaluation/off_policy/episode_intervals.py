"""Confidence intervals of off-policy estimates. The unit is one episode.

Ratios of probabilities are skewed, and few of many episodes may dominate an estimate: an interval
that counts all n of them is far too narrow. The interval called ``jackknife`` therefore is

    V -+ c(g) t_v s,    s^2 = (n - 1) / n sum_i (V_{-i} - mean)^2
    v = min(N - 1,  2 n / (k - (n - 3) / (n - 1)))

with V_{-i} the estimate without episode i (Tukey 1958; Efron & Tibshirani 1993, chapter 11) and N
the effective sample size. k is the kurtosis of the pseudo-values n V - (n - 1) V_{-i}: the second
term of v is the number of degrees of freedom at which s^2 would vary as much as it does under that
kurtosis (2 / v = Var s^2 / s^4; Satterthwaite 1946). c is the larger factor of
``statistics/intervals/mean_intervals.py`` for N runs, used on both sides, at a skewness g of the
pseudo-values of at least ``MIN_SKEWNESS``: the episodes that would skew them most are the rarest,
and few datasets contain them. How often it covers the truth: benchmarks/results/offpolicy.md. It
cannot know of paths that the evaluated policy takes and nobody logged;
``evaluation/off_policy/importance_estimates.py`` states no interval if the ratios show that some
are missing.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from sterling.equations import importance_sampling as equations
from sterling.statistics import Estimate, estimate
from sterling.statistics.intervals import mean_intervals as of_mean
from sterling.statistics.intervals.aggregates import Aggregate, Weights
from sterling.statistics.scores.score_table import Sample

MEAN_INTERVALS = ("t", "skew-t")
BOOTSTRAP_DRAWS = 2000
MIN_SKEWNESS = 0.25  # minimum skewness assumed, as a share of the largest possible for n episodes


def estimate_from_sums(
    sums: equations.Sums,
    effective: float,
    *,
    level: float = 0.95,
    interval: str = "jackknife",
    key: int = 0,
) -> Estimate:
    """Return the estimate from tables A and B (``equations/importance_sampling.py``), with its
    interval over episodes.

    ``effective``: effective sample size. ``interval``: "jackknife"; "t" and "skew-t" of the mean of
    each episode's contribution (``equations.pulls``); "bootstrap", "bca", "bootstrap-se" resample
    episodes (``statistics/intervals/bootstrap.py``).
    """
    terms, weights = (np.asarray(x, np.float64) for x in sums)
    if interval == "jackknife" and len(terms) > 1:
        return jackknife(*leave_one_out(terms, weights), effective, level)
    pulls = np.asarray(equations.episode_contributions(sums), np.float64)
    if interval in (*MEAN_INTERVALS, "none") or len(pulls) == 1:
        return estimate(pulls, level=level, interval="t" if len(pulls) == 1 else interval)

    def weighted(sample: Sample, counts: Weights) -> Float[np.ndarray, "draw"]:
        return _sum_of_ratios(counts @ terms, counts @ weights)

    statistic = Aggregate("ratio", weighted)
    return estimate(
        pulls, statistic, level=level, interval=interval, key=key, draws=BOOTSTRAP_DRAWS
    )


def replicate_interval(
    value: float,
    replicates: Float[np.ndarray, "replicate"],
    *,
    n: int,
    level: float,
    what: str,
    freedom: int,
) -> Estimate:
    """Return an interval from a value and its bootstrap replicates: value -+ t s, with s their
    deviation (Efron & Tibshirani 1993, chapter 12).

    t is Student's with ``freedom`` degrees of freedom; s^2 is multiplied by n / (n - 1), which
    resampling ``n`` episodes hides.
    """
    from scipy.special import stdtrit  # slow to import

    if n < 2:
        return Estimate(value, None, None, n, "none (one episode)", level)
    error = float(replicates.std(ddof=1)) * math.sqrt(n / (n - 1))
    half = float(stdtrit(max(freedom, 1), 0.5 + level / 2)) * error
    return Estimate(value, value - half, value + half, n, what, level)


def leave_one_out(
    terms: Float[np.ndarray, "episode column"], weights: Float[np.ndarray, "episode column"]
) -> tuple[float, Float[np.ndarray, "episode"]]:
    """Return V, and V without each episode."""
    top, bottom = terms.sum(0), weights.sum(0)
    rest = np.maximum(bottom[None] - weights, 0.0)
    without = _sum_of_ratios(top[None] - terms, np.where(rest > 1e-9 * bottom[None], rest, 0.0))
    return float(_sum_of_ratios(top, bottom)), without


def jackknife(
    value: float, without: Float[np.ndarray, "episode"], effective: float, level: float
) -> Estimate:
    """Return V with the interval of the module docstring; ``without``: V without each episode."""
    n = len(without)
    away = -(n - 1) * (without - without.mean())
    worth, second = max(effective, 2.0), float((away**2).mean())
    half = _half_width_factor(away, worth, level) * math.sqrt(second / (n - 1))
    return Estimate(value, value - half, value + half, n, "jackknife", level)


def _half_width_factor(away: Float[np.ndarray, "episode"], worth: float, level: float) -> float:
    """Return c(g) t_v of the module docstring.

    ``away``: the pseudo-values minus their mean; ``worth``: the effective sample size, at least 2.
    """
    from scipy.special import stdtrit

    n, second = len(away), float((away**2).mean())
    if second <= 0.0:
        return 0.0
    skewness = abs(float((away**3).mean())) / second**1.5
    kurtosis = float((away**4).mean()) / second**2
    share = skewness * math.sqrt(worth - 1.0) / max(worth - 2.0, 0.5)
    arms = of_mean.skew_t_arms(worth, np.asarray(min(max(share, MIN_SKEWNESS), 1.0)))
    spread = max(kurtosis - (n - 3) / (n - 1), 1e-9)
    freedom = max(min(worth - 1.0, 2.0 * n / spread), 1.0)
    return max(map(float, arms)) * float(stdtrit(freedom, 0.5 + level / 2))


def _sum_of_ratios(
    top: Float[np.ndarray, "*rest column"], bottom: Float[np.ndarray, "*rest column"]
) -> Float[np.ndarray, "*rest"]:
    """Return the sums of ratios over columns; a column without weight gives 0."""
    some = bottom > 0.0
    return np.asarray((np.where(some, top, 0.0) / np.where(some, bottom, 1.0)).sum(-1))
