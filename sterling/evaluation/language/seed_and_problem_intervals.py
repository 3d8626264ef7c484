"""The mean over seeds and problems, both random samples, with a two-way confidence interval.

Every seed answers every problem, so the numbers x_sp ``(seed, problem)`` are crossed: those of one
seed are correlated, and so are those of one problem. The interval is about *other* seeds and
*other* problems:

    m -+ c(-+g) t_v se,     se^2 = (M_s + M_p) / (S P)
    M_s = P sum_s (x_s. - m)^2 / (S - 1),     M_p = S sum_p (x_.p - m)^2 / (P - 1)
    v = (M_s + M_p)^2 / (M_s^2 / (S - 1) + M_p^2 / (P - 1))     (Satterthwaite 1946)

This is the variance that independent resampling of seeds and problems would show (the pigeonhole
bootstrap: Owen 2007, Annals of Applied Statistics 1), but without resampling noise, without its
factor 1 - 1 / S, and with Student's tails; with 2 or 3 seeds, percentiles of that bootstrap mostly
cover the mean in 60 to 95 % of cases (docs/language_judging.md). The interaction of a seed *and* a
problem counts twice, which makes the interval too wide rather than too narrow. The factors c are
those of ``statistics/intervals/mean_intervals.py`` at (v + 1) / 2 runs.

With one seed the interval is ``statistics.estimate`` over the problems; it says nothing about other
seeds, and ``method`` states that.

A sample does not show what it missed. A kind of problem with share u = 1 - (alpha / 2)^(1 / P) is
absent from P problems with probability alpha / 2; if the numbers have ``bounds``, the interval
reaches at least as far as such problems, all at a bound, would move the mean. So the interval keeps
a positive width, that of Clopper and Pearson, when all answers are right or all are wrong.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from sterling.statistics import Estimate, estimate
from sterling.statistics.intervals import mean_intervals as of_mean
from sterling.statistics.scores.score_bounds import Bounds, parse_bounds

UNIT, POSITIVE = (0.0, 1.0), (0.0, None)


def two_way_estimate(
    values: Float[np.ndarray, "seed problem"],
    *,
    bounds: Bounds | None = UNIT,
    level: float = 0.95,
) -> Estimate:
    """Return the mean of ``values`` and its interval, within ``bounds`` (None, or None for one end:
    unbounded).

    ``n`` counts seeds, or problems if there is one seed. A single number gives no interval.
    """
    seeds, problems = values.shape
    if min(values.shape) == 1:
        one = estimate(values.ravel(), level=level, within=bounds)
        if one.low is None or one.high is None:
            return one
        over = f"{problems} problems, one seed" if seeds == 1 else f"{seeds} seeds, one problem"
        ends, method = (one.low, one.high), f"{one.method} over {over}"
    else:
        ends = _interval_ends(values, level)
        method = f"two-way t over {seeds} seeds and {problems} problems"
    value, n = float(values.mean()), problems if seeds == 1 else seeds
    low, high = _allow_for_unseen(ends, value, problems, bounds, level)
    return Estimate(value, low, high, n, method, level)


def two_way_without_missing(
    values: Float[np.ndarray, "seed problem"], bounds: Bounds | None = None
) -> Estimate:
    """Return the same estimate for values with NaN, over the problems that have a value for every
    seed.

    If no problem is left, ``value`` is NaN and there is no interval.
    """
    whole = values[:, np.isfinite(values).all(0)]
    if not whole.size:
        return Estimate(math.nan, None, None, 0, "none (nothing to measure)", 0.95)
    made = two_way_estimate(whole, bounds=bounds)
    lost = values.shape[1] - whole.shape[1]
    note = f"{made.method}; {lost} of {values.shape[1]} problems have none" if lost else made.method
    return dataclasses.replace(made, method=note)


def _interval_ends(values: Float[np.ndarray, "seed problem"], level: float) -> tuple[float, float]:
    from scipy.special import stdtrit  # slow to import

    seeds, problems = values.shape
    middle = float(values.mean())
    if not np.ptp(values):  # exactly equal values: rounding must not create a spread
        return middle, middle
    of_seeds, of_problems = values.mean(1) - middle, values.mean(0) - middle
    own = problems * float((of_seeds**2).sum()) / (seeds - 1)
    other = seeds * float((of_problems**2).sum()) / (problems - 1)
    whole = own + other
    if whole < 1e-24:  # the effects of seeds and problems cancel
        return middle, middle
    least = min(values.shape)
    freedom = whole**2 / (own**2 / (seeds - 1) + other**2 / (problems - 1))
    freedom = max(freedom, least - 1.0)
    skewness = (_skewness(of_seeds) * own**1.5 + _skewness(of_problems) * other**1.5) / whole**1.5
    worth = max((freedom + 1.0) / 2.0, float(least))
    low, high = of_mean.skew_t_arms(worth, np.asarray(skewness))
    half = float(stdtrit(freedom, 0.5 + level / 2.0)) * math.sqrt(whole / (seeds * problems))
    return middle - float(low) * half, middle + float(high) * half


def _skewness(away: Float[np.ndarray, "one"]) -> float:
    """Return the skewness of deviations from their mean, as a share of the largest possible at this
    sample size."""
    second = float((away**2).mean())
    if second < 1e-24:
        return 0.0
    largest = max(away.size - 2.0, 0.5) / math.sqrt(away.size - 1.0)
    return max(min(float((away**3).mean()) / second**1.5 / largest, 1.0), -1.0)


def _allow_for_unseen(
    ends: tuple[float, float], value: float, problems: int, bounds: Bounds | None, level: float
) -> tuple[float, float]:
    """Widen the interval for problems that the sample may have missed, and clip it to the
    bounds."""
    least, most = parse_bounds(bounds)
    unseen = 1.0 - ((1.0 - level) / 2.0) ** (1.0 / problems)
    low, high = ends
    if least is not None and most is not None:
        low = min(low, value + unseen * (least - value))
        high = max(high, value + unseen * (most - value))
    low = low if least is None else max(low, least)
    return low, high if most is None else min(high, most)
