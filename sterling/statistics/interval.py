"""A number from several runs, and how far it can be trusted.

The unit is one run, that is one seed: the episodes of a run share its policy and are not
independent. What ``interval="auto"`` takes; how often each holds is in ``docs/statistics.md``:

| statistic | scores | interval |
|---|---|---|
| mean, gap | a score lies at or near a declared bound (``within=``) | bounded, on declared sides |
| mean, gap | elsewhere | t, cut at the declared bounds |
| mean, gap | all equal, not both bounds declared | none: no spread was seen |
| mean | rates of ``episodes=`` episodes each, one task | beta-binomial |
| others | several tasks | bootstrap-se (``statistics/bootstrap.py``) |
| iqm, median, a function | one task | bootstrap-se |
| cvar, worst | one task | none: resampling cannot see beyond the lowest run |
| any | one run | none |

Bounded is ``statistics/bounded.py``; with scores of 0 and 1 within (0, 1) it is the exact interval
of Clopper & Pearson. Nothing is guessed from the values of scores.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterling.statistics import bootstrap, declared, mean, success
from sterling.statistics.aggregate import Aggregate, named
from sterling.statistics.declared import Bounds, Within
from sterling.statistics.scores import Failed, Given, Sample, sample
from sterling.types import Mistake

OF_MEAN = ("t", "skew-t", "bounded", "exact", "wilson", "beta")
KINDS = ("auto", *OF_MEAN, *bootstrap.KINDS, "none")
SURE = ("exact", "bounded")  # allow for what no run showed
STILL = "none (no spread seen)"  # equal scores say nothing of chance that did not show


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its interval, in the unit of the scores."""

    value: float
    low: float | None  # None where there is no interval; ``method`` says why
    high: float | None
    n: int  # runs it rests on; with several tasks, of the task that has fewest
    method: str  # how the interval was made, and what was done about failed runs
    level: float  # share of such intervals that hold the true number

    def __str__(self) -> str:
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        value, *ends = _written([self.value, *bounds])
        if ends:
            return f"{value} [{', '.join(ends)}]"
        if self.method.startswith(STILL):
            return f"{value} (no spread seen in {self.n})"
        return f"{value} ({'one run, ' if self.n == 1 else ''}no interval)"

    @property
    def caution(self) -> str:
        """What so many runs cannot exclude, as a sentence; "" where the interval allows for it."""
        bounded = self.method.partition(";")[0] in SURE
        return "" if bounded or self.n < 2 else declared.rule_of(self.n)

    def to_json(self) -> dict[str, Any]:
        """Plain values under the fields' names."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Estimate:
        """The inverse, other entries passed over; ``result.json`` says ``estimate`` for value."""
        plain = {"value": plain.get("estimate"), **plain}
        return cls(**{field.name: plain[field.name] for field in dataclasses.fields(cls)})


def estimate(
    scores: Given,
    what: str | Callable[..., Any] | Aggregate = "mean",
    *,
    level: float = 0.95,
    key: int = 0,
    interval: str = "auto",
    failed: Failed = None,
    episodes: int | None = None,
    draws: int = 10_000,
    shared: bool = False,
    within: Within = None,
) -> Estimate:
    """A statistic of ``(run,)`` or ``(run, task)`` scores with its interval at ``level``.

    ``what``: "mean", "median", "iqm", "gap", "cvar", "worst" (see ``statistics/aggregate.py``), or
    a function of a ``(run, task)`` array. ``interval``: see the head of this file for "auto"; or
    "t", "skew-t", "bounded", "exact", "wilson", "beta", "bootstrap-se", "bootstrap", "bca",
    "percentile-t", "none". ``failed`` says what NaN counts as (``statistics/scores.py``).
    ``episodes``: the scores are success rates of that many episodes each. ``draws``: resamples of a
    bootstrap, made from ``key``; equal inputs and key give bit-equal intervals. ``shared``: a row
    is one run tried on every task, so its scores stay together. ``within``: ``(low, high)``, what
    no score can leave, as (0, 500) for CartPole-v1; None for an end that has no bound. A bound that
    a score passes is dropped, and ``method`` says so.

    One run gives no interval (``low`` and ``high`` are None). Nor do runs that all scored the same,
    where the scores have not two declared bounds: nothing is known of the spread that did not show.

    Raises Mistake for no scores, for NaN without ``failed``, and for an interval that does not
    suit the statistic.
    """
    checked_level(level)
    if interval not in KINDS:
        raise Mistake(f"no interval is called {interval!r}; there are {', '.join(KINDS)}")
    made = sample(scores, declared.counted_as(failed, within))
    bounds, dropped = declared.kept(made.values, declared.checked(within))
    aggregate = named(what)
    value = aggregate.point(made)
    kind, (low, high) = _interval(
        made,
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
        low, high = _trimmed(low, high, value, bounds, aggregate)
        if kind not in SURE and math.isclose(low, high, rel_tol=1e-12, abs_tol=1e-300):
            kind, low, high = STILL, None, None
    method = "; ".join(part for part in (kind, made.note, dropped) if part)
    return Estimate(value, low, high, made.n, method, level)


def _trimmed(
    low: float, high: float, value: float, bounds: Bounds, aggregate: Aggregate
) -> tuple[float, float]:
    """The ends cut at the declared bounds, and not past the value by rounding."""
    if aggregate.cap is None:  # a gap has other bounds than the scores
        low = low if bounds[0] is None else max(low, bounds[0])
        high = high if bounds[1] is None else min(high, bounds[1])
    apart = 1e-9 * (abs(value) + abs(high - low))
    return (value if 0 < low - value < apart else low), (
        value if 0 < value - high < apart else high
    )


def checked_level(level: float) -> None:
    """Raises Mistake for a level that is no share."""
    if not 0.0 < level < 1.0:
        raise Mistake(f"the level of an interval lies between 0 and 1; got {level}")


def _interval(
    made: Sample,
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
    """The interval's name and its ends."""
    if kind == "none":
        return "none", (None, None)
    if made.n == 1:
        return "none (one run)", (None, None)
    if aggregate.cap is not None:  # a gap is the mean of what is missing
        made, bounds = _missing(made, aggregate.cap, bounds)
        aggregate = named("mean")
    if shared and made.tasks > 1 and aggregate.name == "mean":
        made = rows(made)  # the mean of a row is one score of one run
    if kind == "auto":
        kind = _suiting(made, aggregate, episodes, bounds)
    if kind in bootstrap.KINDS:
        return kind, bootstrap.interval(
            made, aggregate, kind, level=level, key=key, draws=draws, shared=shared
        )
    if kind not in ("auto", *OF_MEAN):
        return kind, (None, None)
    if aggregate.name != "mean":
        raise Mistake(f"interval={kind!r} is one of the mean; take 'bootstrap-se' for others")
    if kind in ("exact", "wilson", "beta"):
        return kind, success.interval(made, kind, episodes or 1, level)
    return mean.interval(made, kind, bounds, level)


def _missing(made: Sample, cap: float, bounds: Bounds) -> tuple[Sample, Bounds]:
    """What each score lacks to ``cap``, and the bounds of that."""
    low, high = bounds
    ends = 0.0 if high is None else max(cap - high, 0.0), None if low is None else max(cap - low, 0)
    return dataclasses.replace(made, values=cap - np.minimum(made.values, cap)), ends


def _suiting(made: Sample, aggregate: Aggregate, episodes: int | None, bounds: Bounds) -> str:
    """What "auto" takes; for a mean "auto" again, which ``mean.interval`` decides."""
    if aggregate.name == "mean":
        return "beta" if episodes is not None and made.tasks == 1 else "auto"
    if made.tasks == 1 and aggregate.extreme:
        return "none (the extreme of few runs; see tolerance)"
    if made.tasks == 1 and bounds == (0.0, 1.0) and success.is_success(made.values):
        return "none (successes have a mean, no quartiles)"
    return "bootstrap-se"


def rows(made: Sample) -> Sample:
    """The mean over tasks of each run, as scores on one task."""
    if len(set(made.counts)) > 1:
        raise Mistake("runs shared by all tasks need every run on every task")
    means = made.values.reshape(made.tasks, made.n).mean(0)
    return Sample(means, (made.n,), made.note)


def _written(numbers: Sequence[float]) -> list[str]:
    """The numbers with one common count of decimals: four digits for the largest."""
    largest = max(abs(number) for number in numbers)
    decimals = 3 if largest == 0.0 else min(max(3 - math.floor(math.log10(largest)), 0), 12)
    return [f"{round(number, decimals) + 0.0:.{decimals}f}" for number in numbers]
