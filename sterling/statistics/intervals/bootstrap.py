"""Intervals from resampled runs, each task resampled on its own.

| kind | ends | source |
|---|---|---|
| bootstrap-se | point -+ t_v se sqrt(n / (n - 1)) | Efron & Tibshirani 1993, chapter 12 |
| bootstrap | percentiles of the resampled statistic, as in rliable | Efron 1979 |
| bca | percentiles corrected for bias and acceleration | Efron 1987, JASA 82 |
| percentile-t | quantiles of the studentised mean, mirrored | Hall 1988, Ann. Stat. 16 |

se is the standard deviation of the resampled statistic.

With few runs the percentiles are too narrow: resampling n runs shows (n - 1) / n of their variance,
and ignores Student's tails. ``bootstrap-se`` corrects both, v being Welch and Satterthwaite's
degrees of freedom, and holds its level from three runs on; "auto" takes it for the IQM and the
median. Median and CVaR of task means are biased as well (noise reorders the tasks), so for them
se^2 grows by twice the squared bias that resampling shows, and the arms are stretched as for skewed
means (``mean_intervals.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from sterling.statistics.intervals import mean_intervals
from sterling.statistics.intervals.aggregates import Aggregate, task_means
from sterling.statistics.intervals.stratified_resampling import (
    random_generator,
    resample_statistic,
    resample_weights,
)
from sterling.statistics.scores.score_table import Sample
from sterling.types import Mistake

KINDS = ("bootstrap-se", "bootstrap", "bca", "percentile-t")
MIN_DRAWS = 100


def bootstrap_interval(
    sample: Sample,
    aggregate: Aggregate,
    kind: str,
    *,
    level: float,
    key: int,
    draws: int,
    shared: bool,
) -> tuple[float, float]:
    """Return the ends of an interval of ``kind``; raises Mistake for too few ``draws``."""
    if draws < MIN_DRAWS:
        raise Mistake(f"an interval needs at least {MIN_DRAWS} draws; got draws={draws}")
    rng = random_generator(key, "estimate")
    if kind == "percentile-t":
        return _percentile_t_interval(
            sample, aggregate, level, resample_weights(sample, draws, rng, shared)
        )
    resampled = resample_statistic(sample, aggregate, draws, rng, shared)
    if kind == "bootstrap":
        return _quantile_ends(resampled, (1.0 - level) / 2.0, (1.0 + level) / 2.0)
    if kind == "bca":
        return _bca_interval(sample, aggregate, level, resampled)
    return _standard_error_interval(sample, aggregate, level, resampled, shared)


def _quantile_ends(
    resampled: Float[np.ndarray, "draw"], low: float, high: float
) -> tuple[float, float]:
    """Return two quantiles of the resampled statistic."""
    ends = np.quantile(resampled, [low, high])
    return float(ends[0]), float(ends[1])


def _standard_error_interval(
    sample: Sample, aggregate: Aggregate, level: float, resampled: np.ndarray, shared: bool
) -> tuple[float, float]:
    """Return the bootstrap-se interval: point -+ t times the deviation of the resamples."""
    from scipy.special import stdtrit  # slow to import, and not every use needs it

    point, variances = aggregate.point(sample), [c.var() / c.size for c in sample.columns]
    freedom = (
        sample.n - 1.0
        if shared
        else mean_intervals.degrees_of_freedom(np.array(variances), sample.counts)
    )
    spread = float(resampled.var()) * sample.n / (sample.n - 1)
    low = high = np.ones(())
    if aggregate.ordered and sample.tasks > 1:
        spread += 2.0 * float(resampled.mean() - point) ** 2
        low, high = mean_intervals.skew_t_arms(*mean_intervals.effective_runs_and_skewness(sample))
    half = float(stdtrit(freedom, 0.5 + level / 2.0)) * math.sqrt(spread)
    return point - float(low) * half, point + float(high) * half


def _bca_interval(
    sample: Sample, aggregate: Aggregate, level: float, resampled: np.ndarray
) -> tuple[float, float]:
    """Return Efron's BCa interval; the acceleration comes from leaving out one run at a time."""
    from scipy.special import ndtr, ndtri

    point = aggregate.point(sample)
    below = float((resampled < point).mean() + (resampled == point).mean() / 2.0)
    size = resampled.size
    bias = float(ndtri(min(max(below, 0.5 / size), 1.0 - 0.5 / size)))
    influence = point - aggregate.weighted(sample, _leave_one_out_weights(sample))
    runs = np.repeat(sample.counts, sample.counts).astype(np.float64)
    influence = (influence - _task_mean_per_run(sample, influence)) * (runs - 1) / runs
    second, third = (influence**2).sum(), (influence**3).sum()
    acceleration = float(third / (6.0 * second**1.5)) if second > 0.0 else 0.0
    ends = []
    for quantile in (ndtri((1.0 - level) / 2.0), ndtri((1.0 + level) / 2.0)):
        shifted = bias + float(quantile)
        ends.append(float(ndtr(bias + shifted / max(1.0 - acceleration * shifted, 1e-9))))
    return _quantile_ends(resampled, *ends)


def _leave_one_out_weights(sample: Sample) -> Float[np.ndarray, "score score"]:
    """Return weights that leave out each run in turn; its task's other runs share its weight."""
    task = np.repeat(np.arange(sample.tasks), sample.counts)
    runs = np.repeat(sample.counts, sample.counts).astype(np.float64)
    same = task[:, None] == task
    weights = np.where(same, runs / (runs - 1), 1.0)
    np.fill_diagonal(weights, 0.0)
    return weights


def _task_mean_per_run(sample: Sample, entries: np.ndarray) -> np.ndarray:
    """Return the mean over each task's entries, repeated for every run of the task."""
    means = [part.mean() for part in np.split(entries, sample.starts[1:])]
    return np.repeat(means, sample.counts)


def _percentile_t_interval(
    sample: Sample, aggregate: Aggregate, level: float, drawn_runs: Iterable[np.ndarray]
) -> tuple[float, float]:
    """Return the percentile-t interval of a mean: quantiles of (resampled - point) / its own error.

    Resamples without any variation are left out.
    """
    if aggregate.name != "mean":
        raise Mistake(f"'percentile-t' works only for the mean; use 'bca' for {aggregate.name}")
    point, squared = aggregate.point(sample), Sample(sample.values**2, sample.counts, "")
    counts, ratios = np.array(sample.counts), []
    for drawn in drawn_runs:
        means = task_means(sample, drawn)
        spread = np.maximum(task_means(squared, drawn) - means**2, 0.0) / (counts - 1)
        error = np.sqrt(spread.sum(1)) / sample.tasks
        varies = error > 1e-12 * max(np.abs(sample.values).max(), 1e-300)
        ratios.append((means[varies].mean(1) - point) / error[varies])
    studentised = np.concatenate(ratios)
    variances = np.array([column.var(ddof=1) / column.size for column in sample.columns])
    error_of_point = math.sqrt(variances.sum()) / sample.tasks
    if not studentised.size or error_of_point == 0.0:
        return point, point
    low, high = _quantile_ends(studentised, (1.0 - level) / 2.0, (1.0 + level) / 2.0)
    return point - high * error_of_point, point - low * error_of_point
