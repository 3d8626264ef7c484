"""Performance profiles: the share of runs that score above a threshold.

    F(tau) = mean over tasks of #{runs with x > tau} / runs        Agarwal et al. 2021; strict

The band is pointwise. On each task it is the exact binomial interval of that share, and tasks are
joined by ``success.join_task_intervals``, so it keeps a width where every run is above or below.
Its ends are then made monotone, outwards, as F is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sterling.statistics.intervals.estimates import check_confidence_level
from sterling.statistics.intervals.stratified_resampling import random_generator, resample_weights
from sterling.statistics.intervals.success_rate import clopper_pearson, join_task_intervals
from sterling.statistics.scores.score_table import FailedRule, Sample, ScoresLike, make_sample
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Profile:
    """The share of runs above each threshold, with its band."""

    taus: Float[np.ndarray, "tau"]
    value: Float[np.ndarray, "tau"]
    low: Float[np.ndarray, "tau"] | None  # None for one run
    high: Float[np.ndarray, "tau"] | None
    n: int  # runs of the task with the fewest
    method: str
    level: float


def profile(
    scores: ScoresLike,
    taus: Sequence[float | int] | np.ndarray,
    *,
    level: float = 0.95,
    key: int = 0,
    interval: str = "auto",
    failed: FailedRule = None,
    draws: int = 2_000,
) -> Profile:
    """Return the performance profile of ``(run,)`` or ``(run, task)`` scores at ascending ``taus``.

    ``interval``: "auto" is the exact band above; "bootstrap" takes percentiles over ``draws``
    resamples from ``key``; "none". Raises Mistake for thresholds that do not ascend.
    """
    check_confidence_level(level)
    sample, at = make_sample(scores, failed), np.asarray(taus, np.float64)
    if at.ndim != 1 or at.size == 0 or not (np.diff(at) > 0).all():
        raise Mistake("the thresholds of a profile must ascend; sort taus and drop duplicates")
    above = (sample.values[:, None] > at).astype(np.float64)
    shares = np.array([part.mean(0) for part in np.split(above, sample.starts[1:])])
    value = shares.mean(0)
    low: np.ndarray | None
    high: np.ndarray | None
    if sample.n == 1 or interval == "none":
        kind, low, high = "none" if interval == "none" else "none (one run)", None, None
    elif interval == "auto":
        kind, (low, high) = "exact", _exact_band(shares, sample, level)
    elif interval == "bootstrap":
        kind, (low, high) = "bootstrap", _bootstrap_band(above, sample, level, key, draws)
    else:
        raise Mistake(f"unknown interval {interval!r}; use auto, bootstrap or none")
    method = f"{kind}; {sample.note}" if sample.note else kind
    return Profile(at, value, low, high, sample.n, method, level)


def _exact_band(shares: np.ndarray, sample: Sample, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the band from each task's exact binomial interval."""
    counts, ends = np.array(sample.counts, np.float64), []
    for share, n in zip(shares, sample.counts, strict=True):
        known = np.array([clopper_pearson(float(count), n, level) for count in range(n + 1)])
        ends.append(known[np.rint(share * n).astype(int)])
    variances = shares * (1 - shares) / (counts - 1)[:, None]
    lows, highs = np.moveaxis(np.array(ends), -1, 0)
    low, high = join_task_intervals(
        shares, lows, highs, variances=variances, freedoms=counts - 1, level=level
    )
    return np.minimum.accumulate(low), np.maximum.accumulate(high[::-1])[::-1]


def _bootstrap_band(
    above: np.ndarray, sample: Sample, level: float, key: int, draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the band from percentiles of resampled profiles."""
    share = np.repeat(sample.counts, sample.counts)[:, None] * float(sample.tasks)
    rng = random_generator(key, "profile")
    found = np.concatenate(
        [drawn @ (above / share) for drawn in resample_weights(sample, draws, rng)]
    )
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(found, [tail, 1.0 - tail], axis=0)
    return low, high
