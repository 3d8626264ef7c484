"""Estimate how likely a run of X is better than a run of Y.

    P(X > Y) = mean over tasks of U / (n_X n_Y),    U = #{x > y} + #{x = y} / 2

U is Mann & Whitney's count (1947); the mean over tasks is Agarwal et al. 2021. On each task the
interval is Newcombe's (2006, Statistics in Medicine 25, method 5): the probabilities theta with

    |theta_hat - theta| <= t sqrt(V(theta)),
    V(theta) = theta (1 - theta) [1 + (N - 1) s(theta)] / n_X n_Y,
    s(theta) = (1 - theta) / (2 - theta) + theta / (1 + theta)

N = (n_X + n_Y) / 2, with Student's t of n_X + n_Y - 2 degrees of freedom instead of his z: with
three runs against three, even a clean sweep does not exclude 1/2. The interval keeps a width where
X beat Y in every pair, where a bootstrap has none. Tasks are joined by
``intervals/success_rate.py::join_task_intervals``.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sterling.statistics.intervals.estimates import Estimate, check_confidence_level
from sterling.statistics.intervals.stratified_resampling import random_generator, resample_weights
from sterling.statistics.intervals.success_rate import join_task_intervals
from sterling.statistics.scores.score_table import FailedRule, Sample, ScoresLike, make_sample
from sterling.types import Mistake

BISECTIONS = 60


def improve(
    first: ScoresLike,
    second: ScoresLike,
    *,
    level: float = 0.95,
    key: int = 0,
    interval: str = "auto",
    failed: FailedRule = None,
    draws: int = 10_000,
) -> Estimate:
    """Estimate the probability that a run of ``first`` scores above one of ``second``.

    Ties count half. Both are ``(run,)`` or ``(run, task)`` with the same tasks in the same order;
    the numbers of runs may differ. ``interval``: "auto" is Newcombe's interval (see the head of
    this file); "bootstrap" resamples the runs of both, each task on its own, from ``key``; "none"
    gives no interval. ``n`` of the result is the smallest number of runs on any task, of either
    side; where that is 1 there is no interval.
    """
    check_confidence_level(level)
    ours, theirs = make_sample(first, failed), make_sample(second, failed)
    if ours.tasks != theirs.tasks:
        counts = f"the first side has {ours.tasks} tasks, the second {theirs.tasks}"
        raise Mistake(f"{counts}; select the same tasks for both")
    wins = [_pairwise_wins(x, y) for x, y in zip(ours.columns, theirs.columns, strict=True)]
    value, n = float(np.mean([won.mean() for won in wins])), min(ours.n, theirs.n)
    notes = [note for note in (ours.note, theirs.note) if note]
    if n == 1 or interval == "none":
        method = "none" if interval == "none" else "none (one run)"
        return Estimate(value, None, None, n, "; ".join([method, *notes]), level)
    if interval == "auto":
        method, (low, high) = "Newcombe", _newcombe_interval(wins, level)
    elif interval == "bootstrap":
        method, (low, high) = (
            "bootstrap",
            _bootstrap_interval(ours, theirs, wins, level, key=key, draws=draws),
        )
    else:
        raise Mistake(f"unknown interval {interval!r}; use auto, bootstrap or none")
    return Estimate(value, low, high, n, "; ".join([method, *notes]), level)


def _pairwise_wins(x: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "first second"]:
    """Return, for all pairs, 1 where ``x`` is above ``y``, 1/2 where they are equal, else 0."""
    return (x[:, None] > y) + 0.5 * (x[:, None] == y)


def _newcombe_interval(wins: list[np.ndarray], level: float) -> tuple[float, float]:
    """Return the ends of Newcombe's interval for the mean over tasks."""
    from scipy.special import stdtrit

    middle = np.array([won.mean() for won in wins])
    pairs = np.array([won.size for won in wins], np.float64)
    runs = np.array([sum(won.shape) for won in wins], np.float64)
    quantile = stdtrit(runs - 2.0, 0.5 + level / 2.0)
    low = _newcombe_end(middle, pairs, runs / 2.0, quantile, np.zeros_like(middle))
    high = _newcombe_end(middle, pairs, runs / 2.0, quantile, np.ones_like(middle))
    variances = np.array([_delong_variance(won) for won in wins])
    ends = join_task_intervals(
        middle, low, high, variances=variances, freedoms=runs - 2.0, level=level
    )
    return float(ends[0]), float(ends[1])


def _delong_variance(won: np.ndarray) -> float:
    """Return the variance of one task's estimate (DeLong et al. 1988, Biometrics 44)."""
    first, second = won.mean(1), won.mean(0)
    return float(first.var(ddof=1) / first.size + second.var(ddof=1) / second.size)


def _newcombe_end(
    middle: np.ndarray, pairs: np.ndarray, runs: np.ndarray, quantile: np.ndarray, far: np.ndarray
) -> np.ndarray:
    """Return the theta nearest to ``far`` that lies inside Newcombe's interval, by bisection."""
    inside, outside = middle.copy(), far
    for _ in range(BISECTIONS):
        theta = (inside + outside) / 2.0
        share = (1 - theta) / (2 - theta) + theta / (1 + theta)
        variance = theta * (1 - theta) * (1 + (runs - 1) * share) / pairs
        is_inside = (middle - theta) ** 2 <= quantile**2 * variance
        inside, outside = np.where(is_inside, theta, inside), np.where(is_inside, outside, theta)
    return inside


def _bootstrap_interval(
    ours: Sample, theirs: Sample, wins: list[np.ndarray], level: float, *, key: int, draws: int
) -> tuple[float, float]:
    """Return percentiles of P(X > Y) over resamples of both sides."""
    rng = random_generator(key, "improve")
    resampled = np.zeros(draws)
    our_weights = np.concatenate(list(resample_weights(ours, draws, rng)))
    their_weights = np.concatenate(list(resample_weights(theirs, draws, rng)))
    for won, i, j in zip(wins, ours.starts, theirs.starts, strict=True):
        x, y = won.shape
        won_pairs = (our_weights[:, i : i + x] @ won * their_weights[:, j : j + y]).sum(1)
        resampled += won_pairs / (x * y * len(wins))
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(resampled, [tail, 1.0 - tail])
    return float(low), float(high)
