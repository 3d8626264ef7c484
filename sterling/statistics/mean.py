"""Intervals of the mean of a few runs, and of the mean over tasks of such means.

    t        mean -+ t_v se                                     exact for normal scores
    skew-t   [mean - c(-g) t_v se,  mean + c(g) t_v se]

    se^2 = (sum over tasks of s_m^2 / n_m) / M^2,  v: Satterthwaite (1946); n - 1 on one task

``interval`` chooses. Student's interval (1908) is taken where no score lies at or near a declared
bound, cut at the bounds; where one does, Student's misses the mean of five runs of which none fails
in most cases, and ``statistics/bounded.py`` is taken. With scores that are skewed and have no
declared bound no interval can promise its level (Bahadur & Savage 1956, Annals of Mathematical
Statistics 27): with log-normal ones (sigma = 1) a 95 % interval of Student's holds the mean in 84 %
of cases at n = 3 and in 82 % at n = 5. ``Estimate.caution`` says what n runs cannot exclude.

skew-t is there by name, for ratios of importance sampling, for crossed samples and for the median
of task means, whose skewness is known beforehand. Corrections by the sample's skewness (Johnson
1978, JASA 73; Hall 1992, JRSS B 54) need more than ten runs to see it.
The skew-t interval therefore stretches either arm by

    c(g) = max(1, base + slope g),    g = skewness / its largest value for n, (n-2)/sqrt(n-1)

with base and slope made, for each n, to give the least width among those that hold the mean in
94.5 % of samples from every log-normal with sigma <= 1, mirrored or not. They come from
``benchmarks/statistics/calibrate.py``. The price under normal scores is 2.3 times the width of t
at n = 3, 2.0 at n = 5, 1.4 at n = 10, 1.1 at n = 20 and nothing from n = 50 on. Over several tasks
n is half of v + 1, at least the runs of one task: skewness averages out.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float

from sterling.statistics.bounded import bounded_mean
from sterling.statistics.declared import Bounds, at_bound
from sterling.statistics.scores import Sample
from sterling.statistics.success import joined
from sterling.types import Mistake

Ends = tuple[Float[np.ndarray, "*rest"], Float[np.ndarray, "*rest"]]

# n, base, slope; as printed by calibrate.py. From 1000 runs on the arms are Student's.
ARMS = np.array(
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


def interval(
    made: Sample, kind: str, bounds: Bounds, level: float
) -> tuple[str, tuple[float, float]]:
    """Return the name and the ends of "t", "skew-t", "bounded" or "auto" for the mean over tasks.

    Over several tasks, where one is bounded, each task's own ends are joined as in
    ``success.joined``. Raises Mistake for "bounded" without a bound.
    """
    if kind in ("t", "skew-t"):
        return kind, over_tasks(made, level, kind == "skew-t")
    if kind == "bounded" and bounds == (None, None):
        raise Mistake("interval='bounded' needs the bounds of scores: within=(low, high)")
    same = len(set(made.counts)) == 1
    tables = [made.values.reshape(made.tasks, -1).T] if same else [c[:, None] for c in made.columns]
    parts = [columns(table, bounds, level, always=kind == "bounded") for table in tables]
    lows, highs, is_bounded = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not is_bounded.any():
        return "t", over_tasks(made, level, False)
    name = _called(bounds) if is_bounded.all() else f"{_called(bounds)} or t, task by task"
    if made.tasks == 1:
        return name, (float(lows[0]), float(highs[0]))
    variances = np.array([_variance(column) / column.size for column in made.columns])
    low, high = joined(
        np.array([column.mean() for column in made.columns]),
        lows,
        highs,
        variances=variances,
        freedoms=np.array(made.counts) - 1.0,
        level=level,
        within=(-math.inf, math.inf),
    )
    return name, (float(low), float(high))


def columns(
    values: Float[np.ndarray, "run *rest"], bounds: Bounds, level: float, *, always: bool = False
) -> tuple[Float[np.ndarray, "*rest"], Float[np.ndarray, "*rest"], Bool[np.ndarray, "*rest"]]:
    """Return the ends for the mean of each column, and whether they are the bounded ones.

    Those are taken where a score lies at a bound, where all scores are equal between two bounds,
    and everywhere with ``always``; on a side without a bound the end is Student's.
    """
    low, high = t(values, level)
    equal = np.ptp(values, axis=0) == 0.0
    taken = np.asarray(at_bound(values, bounds) | (equal & (None not in bounds)) | always)
    if taken.any():
        inside = np.clip(values[:, taken], *_infinite(bounds))  # rounding of float32 passes them
        down, up = bounded_mean(inside, *bounds, level)
        low[taken] = np.where(np.isfinite(down), down, low[taken])
        high[taken] = np.where(np.isfinite(up), up, high[taken])
    least, most = _infinite(bounds)
    return np.asarray(np.maximum(low, least)), np.asarray(np.minimum(high, most)), taken


def _infinite(bounds: Bounds) -> tuple[float, float]:
    low, high = bounds
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def _called(bounds: Bounds) -> str:
    if None not in bounds:
        return "bounded"
    return "bounded below, t above" if bounds[1] is None else "t below, bounded above"


def t(values: Float[np.ndarray, "run *rest"], level: float) -> Ends:
    """Student's interval over the first axis."""
    from scipy.special import stdtrit  # slow to import, and not every use needs an interval

    n, middle = len(values), values.mean(0)
    equal = np.ptp(values, axis=0) == 0.0  # exactly: rounding must not make a spread
    error = np.where(equal, 0.0, values.std(0, ddof=1) / math.sqrt(n))
    half = float(stdtrit(n - 1, 0.5 + level / 2.0)) * error
    return np.asarray(middle - half), np.asarray(middle + half)


def over_tasks(made: Sample, level: float, skewed: bool) -> tuple[float, float]:
    """Either interval for the mean over tasks; every task needs at least two runs."""
    from scipy.special import stdtrit  # slow to import, and not every use needs an interval

    middle = float(np.mean([column.mean() for column in made.columns]))
    variances = np.array([_variance(column) / column.size for column in made.columns])
    freedom = freedom_of(variances, made.counts)
    half = float(stdtrit(freedom, 0.5 + level / 2.0)) * math.sqrt(variances.sum()) / made.tasks
    if not skewed:
        return middle - half, middle + half
    low, high = arms(*shape_of(made))
    return middle - float(low) * half, middle + float(high) * half


def freedom_of(variances: Float[np.ndarray, "task"], counts: tuple[int, ...]) -> float:
    """Welch and Satterthwaite's degrees of freedom of a sum of independent variances."""
    least, sizes = float(min(counts) - 1), np.array(counts) - 1.0
    if not variances.any():
        return least
    share = variances / variances.sum()
    return max(float(1.0 / (share**2 / sizes).sum()), least)


def shape_of(made: Sample) -> tuple[float, np.ndarray]:
    """How many runs the mean over tasks is worth, and the skewness of what it is made of."""
    away = [column - column.mean() for column in made.columns]
    variances = np.array([_variance(column) / column.size for column in made.columns])
    worth = freedom_of(variances, made.counts) + 1.0
    second, third = (sum(float((a**power).mean()) for a in away) for power in (2, 3))
    if not variances.any() or second <= 0.0:
        return float(made.n), np.zeros(())
    skewness = third / second**1.5 / _largest(worth)
    return max(worth / 2.0, float(made.n)), np.asarray(np.clip(skewness, -1.0, 1.0))


def arms(n: float, skewness: Float[np.ndarray, "*rest"]) -> Ends:
    """The factors of the lower and the upper arm."""
    base, slope = (np.interp(math.log(n), np.log(ARMS[:, 0]), ARMS[:, at]) for at in (1, 2))
    low, high = (np.maximum(1.0, base + sign * slope * skewness) for sign in (-1.0, 1.0))
    return np.asarray(low), np.asarray(high)


def _largest(n: float) -> float:
    """The skewness of n numbers all equal but one; nothing is known of it below three."""
    return max(n - 2.0, 0.5) / math.sqrt(n - 1.0)


def _variance(column: Float[np.ndarray, "run"]) -> float:
    """The sample's variance; exactly 0 for equal scores."""
    return 0.0 if np.ptp(column) == 0.0 else float(column.var(ddof=1))
