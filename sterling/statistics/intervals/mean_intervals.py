"""Intervals of the mean of a few runs, and of the mean over tasks of such means.

    t        mean -+ t_v se                                     exact for normal scores
    skew-t   [mean - c(-g) t_v se,  mean + c(g) t_v se]

    se^2 = (sum over tasks of s_m^2 / n_m) / M^2,  v: Satterthwaite (1946); n - 1 on one task

``mean_interval`` chooses. Student's interval (1908) is taken where no score lies at or near a
declared bound, and clipped at the bounds. Where a score does, and few runs fail, Student's interval
of five runs without a failure misses the mean in most cases, so ``bounded_mean.py`` is taken. For
skewed scores without a declared bound no interval can guarantee its level (Bahadur & Savage 1956,
Annals of Mathematical Statistics 27): with log-normal scores (sigma = 1) Student's 95 % interval
contains the mean in 84 % of cases at n = 3 and in 82 % at n = 5. ``Estimate.caution`` says what n
runs cannot exclude.

skew-t is available by name, for ratios of importance sampling, for crossed samples and for the
median of task means, whose skewness is known beforehand. Corrections by the sample's skewness
(Johnson 1978, JASA 73; Hall 1992, JRSS B 54) need more than ten runs to detect it. The skew-t
interval therefore stretches either arm by

    c(g) = max(1, base + slope g),    g = skewness / its largest value for n, (n-2)/sqrt(n-1)

with base and slope chosen, for each n, to give the smallest width among those that contain the mean
in 94.5 % of samples from every log-normal with sigma <= 1, mirrored or not. They come from
``benchmarks/statistics/calibrate.py``. For normal scores it is 2.3 times as wide as t at n = 3, 2.0
at n = 5, 1.4 at n = 10, 1.1 at n = 20 and equally wide from n = 50 on. Over several tasks n is half
of v + 1, but at least the runs of one task: skewness averages out.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float

from sterling.statistics.intervals.bounded_mean import bounded_mean
from sterling.statistics.intervals.success_rate import join_task_intervals
from sterling.statistics.scores.score_bounds import Bounds, has_score_at_bound
from sterling.statistics.scores.score_table import Sample
from sterling.types import Mistake

Ends = tuple[Float[np.ndarray, "*rest"], Float[np.ndarray, "*rest"]]

# n, base, slope; as printed by calibrate.py. From 1000 runs on the arms are Student's.
SKEW_T_TABLE = np.array(
    [
        (2, 2.01, 0.00),
        (3, 2.28, 0.09),
        (4, 2.19, 0.60),
        (5, 2.04, 1.17),
        (6, 1.85, 1.40),
        (7, 1.68, 1.59),
        (8, 1.55, 1.77),
        (10, 1.42, 1.73),
        (12, 1.25, 1.96),
        (15, 1.16, 1.81),
        (20, 1.11, 1.61),
        (30, 1.05, 1.35),
        (50, 0.83, 1.78),
        (100, 0.88, 1.28),
        (200, 0.73, 1.82),
        (1000, 1.00, 0.00),
    ]
)


def mean_interval(
    sample: Sample, kind: str, bounds: Bounds, level: float
) -> tuple[str, tuple[float, float]]:
    """Return the method's name and the interval's ends for the mean over tasks.

    ``kind``: "t", "skew-t", "bounded" or "auto". With several tasks, of which at least one is
    bounded, the intervals of the tasks are joined by ``success.join_task_intervals``. Raises
    Mistake for "bounded" without a bound.
    """
    if kind in ("t", "skew-t"):
        return kind, interval_over_tasks(sample, level, kind == "skew-t")
    if kind == "bounded" and bounds == (None, None):
        raise Mistake("interval='bounded' needs the bounds of the scores; pass within=(low, high)")
    same = len(set(sample.counts)) == 1
    tables = (
        [sample.values.reshape(sample.tasks, -1).T]
        if same
        else [c[:, None] for c in sample.columns]
    )
    parts = [column_intervals(table, bounds, level, always=kind == "bounded") for table in tables]
    lows, highs, is_bounded = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not is_bounded.any():
        return "t", interval_over_tasks(sample, level, False)
    name = (
        _method_name(bounds) if is_bounded.all() else f"{_method_name(bounds)} or t, task by task"
    )
    if sample.tasks == 1:
        return name, (float(lows[0]), float(highs[0]))
    variances = np.array([_sample_variance(column) / column.size for column in sample.columns])
    low, high = join_task_intervals(
        np.array([column.mean() for column in sample.columns]),
        lows,
        highs,
        variances=variances,
        freedoms=np.array(sample.counts) - 1.0,
        level=level,
        within=(-math.inf, math.inf),
    )
    return name, (float(low), float(high))


def column_intervals(
    values: Float[np.ndarray, "run *rest"], bounds: Bounds, level: float, *, always: bool = False
) -> tuple[Float[np.ndarray, "*rest"], Float[np.ndarray, "*rest"], Bool[np.ndarray, "*rest"]]:
    """Return the interval ends for each column's mean, and a mask of the columns with bounded ends.

    Bounded ends are taken where a score lies at a bound, where all scores are equal between two
    bounds, and everywhere with ``always``; on a side without a bound the end is Student's.
    """
    low, high = student_interval(values, level)
    equal = np.ptp(values, axis=0) == 0.0
    is_bounded = np.asarray(
        has_score_at_bound(values, bounds) | (equal & (None not in bounds)) | always
    )
    if is_bounded.any():
        # float32 rounding may exceed bounds
        inside = np.clip(values[:, is_bounded], *_none_to_infinity(bounds))
        down, up = bounded_mean(inside, *bounds, level)
        low[is_bounded] = np.where(np.isfinite(down), down, low[is_bounded])
        high[is_bounded] = np.where(np.isfinite(up), up, high[is_bounded])
    lowest, highest = _none_to_infinity(bounds)
    return np.asarray(np.maximum(low, lowest)), np.asarray(np.minimum(high, highest)), is_bounded


def _none_to_infinity(bounds: Bounds) -> tuple[float, float]:
    """Return the bounds with -inf or inf in place of None."""
    low, high = bounds
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def _method_name(bounds: Bounds) -> str:
    """Return the name of the bounded interval for these bounds."""
    if None not in bounds:
        return "bounded"
    return "bounded below, t above" if bounds[1] is None else "t below, bounded above"


def student_interval(values: Float[np.ndarray, "run *rest"], level: float) -> Ends:
    """Return the ends of Student's interval for the mean over the first axis."""
    from scipy.special import stdtrit  # slow to import, and not every use needs an interval

    n, middle = len(values), values.mean(0)
    equal = np.ptp(values, axis=0) == 0.0  # exact comparison: rounding must not create a spread
    error = np.where(equal, 0.0, values.std(0, ddof=1) / math.sqrt(n))
    half = float(stdtrit(n - 1, 0.5 + level / 2.0)) * error
    return np.asarray(middle - half), np.asarray(middle + half)


def interval_over_tasks(sample: Sample, level: float, skewed: bool) -> tuple[float, float]:
    """Return the ends of t or skew-t for the mean over tasks of two runs or more each."""
    from scipy.special import stdtrit  # slow to import, and not every use needs an interval

    middle = float(np.mean([column.mean() for column in sample.columns]))
    variances = np.array([_sample_variance(column) / column.size for column in sample.columns])
    freedom = degrees_of_freedom(variances, sample.counts)
    half = float(stdtrit(freedom, 0.5 + level / 2.0)) * math.sqrt(variances.sum()) / sample.tasks
    if not skewed:
        return middle - half, middle + half
    low, high = skew_t_arms(*effective_runs_and_skewness(sample))
    return middle - float(low) * half, middle + float(high) * half


def degrees_of_freedom(variances: Float[np.ndarray, "task"], counts: tuple[int, ...]) -> float:
    """Return Welch and Satterthwaite's degrees of freedom for a sum of independent variances."""
    fewest, sizes = float(min(counts) - 1), np.array(counts) - 1.0
    if not variances.any():
        return fewest
    share = variances / variances.sum()
    return max(float(1.0 / (share**2 / sizes).sum()), fewest)


def effective_runs_and_skewness(sample: Sample) -> tuple[float, np.ndarray]:
    """Return the effective number of runs behind the mean over tasks, and their skewness.

    The skewness is pooled over tasks, as a share of its largest possible value.
    """
    deviations = [column - column.mean() for column in sample.columns]
    variances = np.array([_sample_variance(column) / column.size for column in sample.columns])
    effective_runs = degrees_of_freedom(variances, sample.counts) + 1.0
    second, third = (sum(float((a**power).mean()) for a in deviations) for power in (2, 3))
    if not variances.any() or second <= 0.0:
        return float(sample.n), np.zeros(())
    skewness = third / second**1.5 / _largest_skewness(effective_runs)
    return max(effective_runs / 2.0, float(sample.n)), np.asarray(np.clip(skewness, -1.0, 1.0))


def skew_t_arms(n: float, skewness: Float[np.ndarray, "*rest"]) -> Ends:
    """Return the factors by which skew-t stretches the lower and the upper arm of t."""
    base, slope = (
        np.interp(math.log(n), np.log(SKEW_T_TABLE[:, 0]), SKEW_T_TABLE[:, at]) for at in (1, 2)
    )
    low, high = (np.maximum(1.0, base + sign * slope * skewness) for sign in (-1.0, 1.0))
    return np.asarray(low), np.asarray(high)


def _largest_skewness(n: float) -> float:
    """Return the skewness of n numbers of which all but one are equal (its largest value)."""
    return max(n - 2.0, 0.5) / math.sqrt(n - 1.0)


def _sample_variance(column: Float[np.ndarray, "run"]) -> float:
    """Return the unbiased variance; exactly 0 for equal scores."""
    return 0.0 if np.ptp(column) == 0.0 else float(column.var(ddof=1))
