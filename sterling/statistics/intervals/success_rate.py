"""Intervals of a success rate.

Runs that only succeed or fail are counted: the exact interval of Clopper & Pearson (1934,
Biometrika 26) holds at least its level for every true rate and every n; Wilson's (1927, JASA 22) is
shorter and holds it on average over rates. Runs that are rates themselves, of several episodes
each, share a policy within a run, so their episodes are not independent: the beta-binomial interval
widens Wilson's by how much the runs differ (Williams 1982, Applied Statistics 31).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from sterling.statistics.scores.score_table import Sample
from sterling.types import Mistake


def success_interval(sample: Sample, kind: str, episodes: int, level: float) -> tuple[float, float]:
    """Return the ends of the "exact", "wilson" or "beta" interval for the mean over tasks of rates.

    Raises Mistake for scores outside [0, 1], and for "exact" with scores other than 0 and 1.
    """
    columns = [check_rates(column) for column in sample.columns]
    if kind == "exact" and not is_binary(sample.values):
        raise Mistake("interval='exact' counts successes; give scores of 0 and 1, or use 'beta'")
    if kind == "beta":
        ends = [beta_binomial_interval(column, episodes, level) for column in columns]
    elif kind == "wilson":
        ends = [wilson_interval(float(c.mean()), float(c.size * episodes), level) for c in columns]
    else:
        ends = [clopper_pearson(float(column.sum()), column.size, level) for column in columns]
    low, high = join_task_intervals(
        np.array([column.mean() for column in columns]),
        *np.array(ends).T,
        variances=np.array([column.var(ddof=1) / column.size for column in columns]),
        freedoms=np.array(sample.counts) - 1.0,
        level=level,
    )
    return float(low), float(high)


def is_binary(values: np.ndarray) -> bool:
    """Whether all scores are 0 or 1."""
    return bool(np.isin(values, (0.0, 1.0)).all())


def check_rates(values: np.ndarray) -> np.ndarray:
    """Return the scores; raises Mistake unless they lie in [0, 1]."""
    if (values < 0.0).any() or (values > 1.0).any():
        raise Mistake("success rates must lie between 0 and 1; use interval='t' for other scores")
    return values


def clopper_pearson(successes: float, n: int, level: float) -> tuple[float, float]:
    """Return Clopper and Pearson's ends: the rates under which the count is not too unlikely."""
    from scipy.special import betaincinv  # slow to import, and not every use needs it

    tail = (1.0 - level) / 2.0
    low = 0.0 if successes == 0 else float(betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, 1.0 - tail))
    return low, high


def wilson_interval(rate: float, n: float, level: float) -> tuple[float, float]:
    """Return Wilson's score interval; ``n`` may be an effective number that is not whole."""
    from scipy.special import ndtri

    return wilson_interval_at_z(rate, n, float(ndtri(0.5 + level / 2.0)))


def wilson_interval_at_z(rate: float, n: float, z: float) -> tuple[float, float]:
    """Return Wilson's interval at quantile ``z``: the rates p with |rate - p| <= z sqrt(pq/n)."""
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if rate == 0.0 else max(middle - half, 0.0)
    high = 1.0 if rate == 1.0 else min(middle + half, 1.0)
    return low, high


def beta_binomial_interval(values: np.ndarray, episodes: int, level: float) -> tuple[float, float]:
    """Return Wilson's interval of rates, at the number of *independent* episodes.

        design = 1 + (episodes - 1) rho,   n_effective = n episodes / design

    ``rho``, the correlation of the ``episodes`` of a run, is the moment estimate from the variance
    between runs, clipped to [0, 1]. The quantile is Student's with n - 1 degrees of freedom, since
    rho is itself estimated from n runs. Runs that are all 0 or all 1 say nothing about rho: each
    then counts once, by :func:`clopper_pearson`.
    """
    from scipy.special import stdtrit

    if episodes < 1:
        raise Mistake(f"a success rate comes from at least one episode; got episodes={episodes}")
    n, rate = values.size, float(values.mean())
    alone = rate * (1.0 - rate)  # variance of a run whose episodes are all equal
    if alone == 0.0:
        return clopper_pearson(rate * n, n, level)
    design = float(values.var(ddof=1)) * episodes / alone
    design = min(max(design, 1.0), float(episodes))
    z = float(stdtrit(n - 1, 0.5 + level / 2.0))
    return wilson_interval_at_z(rate, n * episodes / design, z)


def join_task_intervals(
    middles: Float[np.ndarray, "task *rest"],
    lows: Float[np.ndarray, "task *rest"],
    highs: Float[np.ndarray, "task *rest"],
    *,
    variances: Float[np.ndarray, "task *rest"],
    freedoms: Float[np.ndarray, "task"],
    level: float,
    within: tuple[float, float] = (0.0, 1.0),
) -> tuple[Float[np.ndarray, "*rest"], Float[np.ndarray, "*rest"]]:
    """Join the intervals of several tasks' means into one of their mean; one task keeps its own.

    Either end is the wider of two. The first combines the distances of the tasks' ends as variances
    add (Zou & Donner 2008, Statistics in Medicine 27): it keeps a width where every rate is 0 or 1.
    The second is Student's, from the estimated ``variances`` of the means and Satterthwaite's
    degrees of freedom: it does not rely on the few runs of one task. Both are clipped to
    ``within``.
    """
    from scipy.special import stdtrit

    tasks, value = len(middles), middles.mean(0)
    down, up = (np.sqrt(((middles - end) ** 2).sum(0)) / tasks for end in (lows, highs))
    if tasks > 1:
        whole = variances.sum(0)
        share = variances / np.where(whole == 0.0, 1.0, whole)
        spread = (np.moveaxis(share, 0, -1) ** 2 / freedoms).sum(-1)
        freedom = np.where(whole == 0.0, 1.0, 1.0 / np.where(spread == 0.0, 1.0, spread))
        half = stdtrit(freedom, 0.5 + level / 2.0) * np.sqrt(whole) / tasks
        down, up = np.maximum(down, half), np.maximum(up, half)
    low, high = np.maximum(value - down, within[0]), np.minimum(value + up, within[1])
    return np.asarray(low), np.asarray(high)
