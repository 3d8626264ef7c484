"""How likely is a run of X better than a run of Y?

    P(X > Y) = mean over tasks of U / (n_X n_Y),    U = #{x > y} + #{x = y} / 2

U is Mann & Whitney's count (1947); the mean over tasks is Agarwal et al. 2021. On each task the
interval is Newcombe's (2006, Statistics in Medicine 25, method 5): the probabilities theta with

    |theta_hat - theta| <= t sqrt(V(theta)),
    V(theta) = theta (1 - theta) [1 + (N - 1) s(theta)] / n_X n_Y,
    s(theta) = (1 - theta) / (2 - theta) + theta / (1 + theta)

N = (n_X + n_Y) / 2, with Student's t of n_X + n_Y - 2 degrees of freedom for his z: at three runs
against three even a clean sweep does not speak against 1/2. It keeps a width where X beat Y in
every pair, where a bootstrap has none. Tasks are joined by ``statistics/success.py::joined``.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sterling.statistics.interval import Estimate, checked_level
from sterling.statistics.resample import generator, weights
from sterling.statistics.scores import Failed, Given, Sample, sample
from sterling.statistics.success import joined
from sterling.types import Mistake

BISECTIONS = 60


def improve(
    first: Given,
    second: Given,
    *,
    level: float = 0.95,
    key: int = 0,
    interval: str = "auto",
    failed: Failed = None,
    draws: int = 10_000,
) -> Estimate:
    """The probability that a run of ``first`` scores above a run of ``second``; ties count half.

    Both are ``(run,)`` or ``(run, task)`` with the same tasks in the same order; the runs may
    differ in number. ``interval``: "auto" is the one above; "bootstrap" draws the runs of both
    again, each task's on its own, from ``key``; "none". ``n`` of the result is the smallest number
    of runs of either on any task; where that is 1 there is no interval.
    """
    checked_level(level)
    ours, theirs = sample(first, failed), sample(second, failed)
    if ours.tasks != theirs.tasks:
        raise Mistake(f"{ours.tasks} tasks cannot be set against {theirs.tasks}; select the same")
    wins = [_wins(x, y) for x, y in zip(ours.columns, theirs.columns, strict=True)]
    value, n = float(np.mean([won.mean() for won in wins])), min(ours.n, theirs.n)
    notes = [note for note in (ours.note, theirs.note) if note]
    if n == 1 or interval == "none":
        method = "none" if interval == "none" else "none (one run)"
        return Estimate(value, None, None, n, "; ".join([method, *notes]), level)
    if interval == "auto":
        method, (low, high) = "Newcombe", _joined(wins, level)
    elif interval == "bootstrap":
        method, (low, high) = "bootstrap", _drawn(ours, theirs, wins, level, key=key, draws=draws)
    else:
        raise Mistake(f"improve knows no interval {interval!r}; take auto, bootstrap or none")
    return Estimate(value, low, high, n, "; ".join([method, *notes]), level)


def _wins(x: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "first second"]:
    """1 where x is above y, 1/2 where they are equal."""
    return (x[:, None] > y) + 0.5 * (x[:, None] == y)


def _joined(wins: list[np.ndarray], level: float) -> tuple[float, float]:
    """Newcombe's intervals of the tasks as one of their mean."""
    from scipy.special import stdtrit

    middle = np.array([won.mean() for won in wins])
    pairs = np.array([won.size for won in wins], np.float64)
    runs = np.array([sum(won.shape) for won in wins], np.float64)
    quantile = stdtrit(runs - 2.0, 0.5 + level / 2.0)
    low = _edge(middle, pairs, runs / 2.0, quantile, np.zeros_like(middle))
    high = _edge(middle, pairs, runs / 2.0, quantile, np.ones_like(middle))
    variances = np.array([_variance(won) for won in wins])
    ends = joined(middle, low, high, variances=variances, freedoms=runs - 2.0, level=level)
    return float(ends[0]), float(ends[1])


def _variance(won: np.ndarray) -> float:
    """Of one task's estimate, from how often each run won (DeLong et al. 1988, Biometrics 44)."""
    first, second = won.mean(1), won.mean(0)
    return float(first.var(ddof=1) / first.size + second.var(ddof=1) / second.size)


def _edge(
    middle: np.ndarray, pairs: np.ndarray, runs: np.ndarray, quantile: np.ndarray, far: np.ndarray
) -> np.ndarray:
    """The theta nearest to ``far`` that the estimate ``middle`` does not speak against."""
    inside, outside = middle.copy(), far
    for _ in range(BISECTIONS):
        theta = (inside + outside) / 2.0
        share = (1 - theta) / (2 - theta) + theta / (1 + theta)
        variance = theta * (1 - theta) * (1 + (runs - 1) * share) / pairs
        held = (middle - theta) ** 2 <= quantile**2 * variance
        inside, outside = np.where(held, theta, inside), np.where(held, outside, theta)
    return inside


def _drawn(
    ours: Sample, theirs: Sample, wins: list[np.ndarray], level: float, *, key: int, draws: int
) -> tuple[float, float]:
    """Percentiles over resamples of both."""
    rng = generator(key, "improve")
    found = np.zeros(draws)
    mine = np.concatenate(list(weights(ours, draws, rng)))
    other = np.concatenate(list(weights(theirs, draws, rng)))
    for won, i, j in zip(wins, ours.starts, theirs.starts, strict=True):
        x, y = won.shape
        seen = (mine[:, i : i + x] @ won * other[:, j : j + y]).sum(1)
        found += seen / (x * y * len(wins))
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(found, [tail, 1.0 - tail])
    return float(low), float(high)
