"""Performance profiles: the share of runs that score above a threshold.

    F(tau) = mean over tasks of #{runs with x > tau} / runs        Agarwal et al. 2021; strict

The band is pointwise. On each task it is the exact binomial interval of that share, and tasks are
joined by ``statistics/success.py::joined``, so it keeps a width where every run is above or below.
Its ends are then made monotone, outwards, as F is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sterling.statistics.interval import checked_level
from sterling.statistics.resample import generator, weights
from sterling.statistics.scores import Failed, Given, Sample, sample
from sterling.statistics.success import exact, joined
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Profile:
    """The share of runs above each threshold, and its band."""

    taus: Float[np.ndarray, "tau"]
    value: Float[np.ndarray, "tau"]
    low: Float[np.ndarray, "tau"] | None  # None for one run
    high: Float[np.ndarray, "tau"] | None
    n: int  # runs of the task that has fewest
    method: str
    level: float


def profile(
    scores: Given,
    taus: Sequence[float | int] | np.ndarray,
    *,
    level: float = 0.95,
    key: int = 0,
    interval: str = "auto",
    failed: Failed = None,
    draws: int = 2_000,
) -> Profile:
    """The performance profile of ``(run,)`` or ``(run, task)`` scores at rising ``taus``.

    ``interval``: "auto" is the band above; "bootstrap" takes percentiles over ``draws`` resamples
    from ``key``; "none". Raises Mistake for thresholds that do not rise.
    """
    checked_level(level)
    made, at = sample(scores, failed), np.asarray(taus, np.float64)
    if at.ndim != 1 or at.size == 0 or not (np.diff(at) > 0).all():
        raise Mistake("a profile needs rising thresholds; sort taus and drop the double ones")
    above = (made.values[:, None] > at).astype(np.float64)
    shares = np.array([part.mean(0) for part in np.split(above, made.starts[1:])])
    value = shares.mean(0)
    low: np.ndarray | None
    high: np.ndarray | None
    if made.n == 1 or interval == "none":
        kind, low, high = "none" if interval == "none" else "none (one run)", None, None
    elif interval == "auto":
        kind, (low, high) = "exact", _exact(shares, made, level)
    elif interval == "bootstrap":
        kind, (low, high) = "bootstrap", _drawn(above, made, level, key, draws)
    else:
        raise Mistake(f"profile knows no interval {interval!r}; take auto, bootstrap or none")
    method = f"{kind}; {made.note}" if made.note else kind
    return Profile(at, value, low, high, made.n, method, level)


def _exact(shares: np.ndarray, made: Sample, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The band from each task's binomial interval."""
    counts, ends = np.array(made.counts, np.float64), []
    for share, n in zip(shares, made.counts, strict=True):
        known = np.array([exact(float(count), n, level) for count in range(n + 1)])
        ends.append(known[np.rint(share * n).astype(int)])
    variances = shares * (1 - shares) / (counts - 1)[:, None]
    lows, highs = np.moveaxis(np.array(ends), -1, 0)
    low, high = joined(shares, lows, highs, variances=variances, freedoms=counts - 1, level=level)
    return np.minimum.accumulate(low), np.maximum.accumulate(high[::-1])[::-1]


def _drawn(
    above: np.ndarray, made: Sample, level: float, key: int, draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """The band from percentiles of resampled profiles."""
    share = np.repeat(made.counts, made.counts)[:, None] * float(made.tasks)
    rng = generator(key, "profile")
    found = np.concatenate([drawn @ (above / share) for drawn in weights(made, draws, rng)])
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(found, [tail, 1.0 - tail], axis=0)
    return low, high
