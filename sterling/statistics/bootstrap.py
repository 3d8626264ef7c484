"""Intervals from resampled runs, each task's drawn on its own.

| kind | ends | source |
|---|---|---|
| bootstrap-se | point -+ t_v se sqrt(n / (n - 1)) | Efron & Tibshirani 1993, chapter 12 |
| bootstrap | percentiles of the resampled statistic, as in rliable | Efron 1979 |
| bca | percentiles corrected for bias and acceleration | Efron 1987, JASA 82 |
| percentile-t | quantiles of the studentised mean, turned round | Hall 1988, Ann. Stat. 16 |

se is the deviation of the resampled statistic.

With few runs the percentiles are too narrow: resampling n runs shows (n - 1) / n of their
variance, and knows nothing of Student's tails. ``bootstrap-se`` mends both, v being Welch and
Satterthwaite's degrees of freedom, and holds its level from three runs on; it is what "auto" takes
for the IQM and the median. Median and CVaR of task means are biased besides (noise reorders the
tasks), so for them se^2 grows by twice the squared bias that resampling shows, and the arms are
stretched as for skewed means (``statistics/mean.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from sterling.statistics import mean
from sterling.statistics.aggregate import Aggregate, task_means
from sterling.statistics.resample import generator, resampled, weights
from sterling.statistics.scores import Sample
from sterling.types import Mistake

KINDS = ("bootstrap-se", "bootstrap", "bca", "percentile-t")
LEAST_DRAWS = 100


def interval(
    made: Sample,
    aggregate: Aggregate,
    kind: str,
    *,
    level: float,
    key: int,
    draws: int,
    shared: bool,
) -> tuple[float, float]:
    """The ends of an interval of ``kind``; ``draws`` resamples from ``key``."""
    if draws < LEAST_DRAWS:
        raise Mistake(f"an interval needs at least {LEAST_DRAWS} draws; got draws={draws}")
    rng = generator(key, "estimate")
    if kind == "percentile-t":
        return _studentised(made, aggregate, level, weights(made, draws, rng, shared))
    found = resampled(made, aggregate, draws, rng, shared)
    if kind == "bootstrap":
        return _percentiles(found, (1.0 - level) / 2.0, (1.0 + level) / 2.0)
    if kind == "bca":
        return _corrected(made, aggregate, level, found)
    return _standard(made, aggregate, level, found, shared)


def _percentiles(found: Float[np.ndarray, "draw"], low: float, high: float) -> tuple[float, float]:
    ends = np.quantile(found, [low, high])
    return float(ends[0]), float(ends[1])


def _standard(
    made: Sample, aggregate: Aggregate, level: float, found: np.ndarray, shared: bool
) -> tuple[float, float]:
    """Around the point, by the deviation of the resampled statistic."""
    from scipy.special import stdtrit  # slow to import, and not every use needs it

    point, variances = aggregate.point(made), [c.var() / c.size for c in made.columns]
    freedom = made.n - 1.0 if shared else mean.freedom_of(np.array(variances), made.counts)
    spread = float(found.var()) * made.n / (made.n - 1)
    low = high = np.ones(())
    if aggregate.ordered and made.tasks > 1:
        spread += 2.0 * float(found.mean() - point) ** 2
        low, high = mean.arms(*mean.shape_of(made))
    half = float(stdtrit(freedom, 0.5 + level / 2.0)) * math.sqrt(spread)
    return point - float(low) * half, point + float(high) * half


def _corrected(
    made: Sample, aggregate: Aggregate, level: float, found: np.ndarray
) -> tuple[float, float]:
    """Efron's BCa; the acceleration from leaving out one run at a time."""
    from scipy.special import ndtr, ndtri

    point = aggregate.point(made)
    below = float((found < point).mean() + (found == point).mean() / 2.0)
    size = found.size
    bias = float(ndtri(min(max(below, 0.5 / size), 1.0 - 0.5 / size)))
    pulls = point - aggregate.weighted(made, _left_out(made))
    runs = np.repeat(made.counts, made.counts).astype(np.float64)
    pulls = (pulls - _group_mean(made, pulls)) * (runs - 1) / runs
    second, third = (pulls**2).sum(), (pulls**3).sum()
    speed = float(third / (6.0 * second**1.5)) if second > 0.0 else 0.0
    ends = []
    for quantile in (ndtri((1.0 - level) / 2.0), ndtri((1.0 + level) / 2.0)):
        moved = bias + float(quantile)
        ends.append(float(ndtr(bias + moved / max(1.0 - speed * moved, 1e-9))))
    return _percentiles(found, *ends)


def _left_out(made: Sample) -> Float[np.ndarray, "score score"]:
    """Weights that leave out each run in turn, the others of its task sharing its weight."""
    task = np.repeat(np.arange(made.tasks), made.counts)
    runs = np.repeat(made.counts, made.counts).astype(np.float64)
    same = task[:, None] == task
    made_up = np.where(same, runs / (runs - 1), 1.0)
    np.fill_diagonal(made_up, 0.0)
    return made_up


def _group_mean(made: Sample, pulls: np.ndarray) -> np.ndarray:
    means = [part.mean() for part in np.split(pulls, made.starts[1:])]
    return np.repeat(means, made.counts)


def _studentised(
    made: Sample, aggregate: Aggregate, level: float, drawn_runs: Iterable[np.ndarray]
) -> tuple[float, float]:
    """Of a mean: quantiles of (resampled - point) / its own error; draws without any left out."""
    if aggregate.name != "mean":
        raise Mistake(f"'percentile-t' is an interval of the mean; take 'bca' for {aggregate.name}")
    point, squared = aggregate.point(made), Sample(made.values**2, made.counts, "")
    counts, ratios = np.array(made.counts), []
    for drawn in drawn_runs:
        means = task_means(made, drawn)
        spread = np.maximum(task_means(squared, drawn) - means**2, 0.0) / (counts - 1)
        error = np.sqrt(spread.sum(1)) / made.tasks
        kept = error > 1e-12 * max(np.abs(made.values).max(), 1e-300)
        ratios.append((means[kept].mean(1) - point) / error[kept])
    found = np.concatenate(ratios)
    variances = np.array([column.var(ddof=1) / column.size for column in made.columns])
    error_here = math.sqrt(variances.sum()) / made.tasks
    if not found.size or error_here == 0.0:
        return point, point
    low, high = _percentiles(found, (1.0 - level) / 2.0, (1.0 + level) / 2.0)
    return point - high * error_here, point - low * error_here
