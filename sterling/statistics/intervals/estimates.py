"""Estimates: a number from several runs, with an interval that says how far it can be trusted.

The unit is one run, that is one seed: the episodes of a run share its policy and are not
independent. ``interval="auto"`` takes (measured coverage is in ``docs/statistics.md``):

| statistic | scores | interval |
|---|---|---|
| mean, gap | a score lies at or near a declared bound (``within=``) | bounded, on declared sides |
| mean, gap | elsewhere | t, clipped at the declared bounds |
| mean, gap | all equal, not both bounds declared | none: no spread was seen |
| mean | rates of ``episodes=`` episodes each, one task | beta-binomial |
| others | several tasks | bootstrap-se (``bootstrap.py``) |
| iqm, median, a function | one task | bootstrap-se |
| cvar, worst | one task | none: resampling cannot see beyond the lowest run |
| any | one run | none |

Bounded is ``bounded_mean.py``; with scores of 0 and 1 within (0, 1) it is the exact interval of
Clopper & Pearson. Nothing is guessed from the values of scores.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterling.statistics.intervals import bootstrap, mean_intervals, success_rate
from sterling.statistics.intervals.aggregates import Aggregate, find_aggregate
from sterling.statistics.scores import score_bounds
from sterling.statistics.scores.score_bounds import Bounds, BoundsLike
from sterling.statistics.scores.score_table import FailedRule, Sample, ScoresLike, make_sample
from sterling.types import Mistake

MEAN_KINDS = ("t", "skew-t", "bounded", "exact", "wilson", "beta")
INTERVAL_KINDS = ("auto", *MEAN_KINDS, *bootstrap.KINDS, "none")
COVERS_UNSEEN = ("exact", "bounded")  # these intervals account for what no run showed
NO_SPREAD = "none (no spread seen)"  # equal scores say nothing about the true spread


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its interval, in the unit of the scores."""

    value: float
    low: float | None  # None where there is no interval; ``method`` says why
    high: float | None
    n: int  # number of runs; with several tasks, of the task with the fewest
    method: str  # the interval's method, and how failed runs were counted
    level: float  # share of such intervals that contain the true value

    def __str__(self) -> str:
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        value, *ends = _format_numbers([self.value, *bounds])
        if ends:
            return f"{value} [{', '.join(ends)}]"
        if self.method.startswith(NO_SPREAD):
            return f"{value} (no spread seen in {self.n})"
        return f"{value} ({'one run, ' if self.n == 1 else ''}no interval)"

    @property
    def caution(self) -> str:
        """Return the sentence on what so many runs cannot exclude; "" if the interval does."""
        if self.n < 2 or self.covers_unseen:
            return ""
        return score_bounds.unseen_collapse_text(self.n)

    @property
    def covers_unseen(self) -> bool:
        """Whether the interval allows for failures that no run showed."""
        return self.method.partition(";")[0] in COVERS_UNSEEN

    def to_json(self) -> dict[str, Any]:
        """Return plain values under the fields' names."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Estimate:
        """Rebuild an estimate; ``estimate`` (as in ``result.json``) is read as ``value``."""
        plain = {"value": plain.get("estimate"), **plain}
        return cls(**{field.name: plain[field.name] for field in dataclasses.fields(cls)})


def estimate(
    scores: ScoresLike,
    what: str | Callable[..., Any] | Aggregate = "mean",
    *,
    level: float = 0.95,
    key: int = 0,
    interval: str = "auto",
    failed: FailedRule = None,
    episodes: int | None = None,
    draws: int = 10_000,
    shared: bool = False,
    within: BoundsLike = None,
) -> Estimate:
    """Estimate a statistic of ``(run,)`` or ``(run, task)`` scores, with its interval at ``level``.

    ``what``: "mean", "median", "iqm", "gap", "cvar", "worst" (see ``aggregates.py``), or
    a function of a ``(run, task)`` array. ``interval``: "auto" (see the head of this file), or "t",
    "skew-t", "bounded", "exact", "wilson", "beta", "bootstrap-se", "bootstrap", "bca",
    "percentile-t", "none". ``failed``: the score that NaN counts as (``score_table.py``).
    ``episodes``: the scores are success rates of that many episodes each. ``draws``: resamples of a
    bootstrap, made from ``key``; equal inputs and key give bit-equal intervals. ``shared``: a row
    is one run evaluated on every task, so its scores stay together. ``within``: ``(low, high)``,
    the bounds of the scores, as (0, 500) for CartPole-v1; None for an end without a bound. A bound
    that a score violates is dropped, and ``method`` says so.

    One run gives no interval (``low`` and ``high`` are None). Nor do runs with equal scores, unless
    two bounds are declared: nothing is known of the spread that did not show.

    Raises Mistake for no scores, for NaN without ``failed``, and for an interval that does not suit
    the statistic.
    """
    check_confidence_level(level)
    if interval not in INTERVAL_KINDS:
        raise Mistake(f"unknown interval {interval!r}; use one of {', '.join(INTERVAL_KINDS)}")
    sample = make_sample(scores, score_bounds.resolve_failed_score(failed, within))
    bounds, dropped = score_bounds.drop_violated_bounds(
        sample.values, score_bounds.parse_bounds(within)
    )
    aggregate = find_aggregate(what)
    value = aggregate.point(sample)
    kind, (low, high) = _interval_of_kind(
        sample,
        aggregate,
        interval,
        bounds,
        level=level,
        key=key,
        episodes=episodes,
        draws=draws,
        shared=shared,
    )
    if low is not None and high is not None:
        low, high = _trim_to_bounds(low, high, value, bounds, aggregate)
        if kind not in COVERS_UNSEEN and math.isclose(low, high, rel_tol=1e-12, abs_tol=1e-300):
            kind, low, high = NO_SPREAD, None, None
    method = "; ".join(part for part in (kind, sample.note, dropped) if part)
    return Estimate(value, low, high, sample.n, method, level)


def _trim_to_bounds(
    low: float, high: float, value: float, bounds: Bounds, aggregate: Aggregate
) -> tuple[float, float]:
    """Clip the ends to the declared bounds, and keep rounding from moving them past the value."""
    if aggregate.cap is None:  # a gap has other bounds than the scores
        low = low if bounds[0] is None else max(low, bounds[0])
        high = high if bounds[1] is None else min(high, bounds[1])
    apart = 1e-9 * (abs(value) + abs(high - low))
    return (value if 0 < low - value < apart else low), (
        value if 0 < value - high < apart else high
    )


def check_confidence_level(level: float) -> None:
    """Raise Mistake unless the level lies between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise Mistake(f"the level of an interval must lie between 0 and 1; got {level}")


def _interval_of_kind(
    sample: Sample,
    aggregate: Aggregate,
    kind: str,
    bounds: Bounds,
    *,
    level: float,
    key: int,
    episodes: int | None,
    draws: int,
    shared: bool,
) -> tuple[str, Bounds]:
    """Return the interval's name and its ends."""
    if kind == "none":
        return "none", (None, None)
    if sample.n == 1:
        return "none (one run)", (None, None)
    if aggregate.cap is not None:  # a gap is the mean shortfall
        sample, bounds = _shortfall(sample, aggregate.cap, bounds)
        aggregate = find_aggregate("mean")
    if shared and sample.tasks > 1 and aggregate.name == "mean":
        sample = average_tasks(sample)  # a row's mean is one run's score
    if kind == "auto":
        kind = _automatic_kind(sample, aggregate, episodes, bounds)
    if kind in bootstrap.KINDS:
        return kind, bootstrap.bootstrap_interval(
            sample, aggregate, kind, level=level, key=key, draws=draws, shared=shared
        )
    if kind not in ("auto", *MEAN_KINDS):
        return kind, (None, None)
    if aggregate.name != "mean":
        raise Mistake(
            f"interval={kind!r} works only for the mean; use 'bootstrap-se' for other statistics"
        )
    if kind in ("exact", "wilson", "beta"):
        return kind, success_rate.success_interval(sample, kind, episodes or 1, level)
    return mean_intervals.mean_interval(sample, kind, bounds, level)


def _shortfall(sample: Sample, cap: float, bounds: Bounds) -> tuple[Sample, Bounds]:
    """Return how far each score falls short of ``cap``, and the bounds of that."""
    low, high = bounds
    ends = 0.0 if high is None else max(cap - high, 0.0), None if low is None else max(cap - low, 0)
    return dataclasses.replace(sample, values=cap - np.minimum(sample.values, cap)), ends


def _automatic_kind(
    sample: Sample, aggregate: Aggregate, episodes: int | None, bounds: Bounds
) -> str:
    """Return the kind that "auto" stands for; for a mean ``mean_interval`` resolves it."""
    if aggregate.name == "mean":
        return "beta" if episodes is not None and sample.tasks == 1 else "auto"
    if sample.tasks == 1 and aggregate.extreme:
        return "none (the extreme of few runs; see tolerance)"
    if sample.tasks == 1 and bounds == (0.0, 1.0) and success_rate.is_binary(sample.values):
        return "none (successes have a mean, no quartiles)"
    return "bootstrap-se"


def average_tasks(sample: Sample) -> Sample:
    """Return each run's mean over tasks, as a sample of one task."""
    if len(set(sample.counts)) > 1:
        raise Mistake("shared=True needs every run on every task")
    means = sample.values.reshape(sample.tasks, sample.n).mean(0)
    return Sample(means, (sample.n,), sample.note)


def _format_numbers(numbers: Sequence[float]) -> list[str]:
    """Format numbers with the same count of decimals: four digits for the largest."""
    largest = max(abs(number) for number in numbers)
    decimals = 3 if largest == 0.0 else min(max(3 - math.floor(math.log10(largest)), 0), 12)
    return [f"{round(number, decimals) + 0.0:.{decimals}f}" for number in numbers]
