"""A number from several runs, and how far it can be trusted.

The unit is one run, that is one seed: the episodes of a run share its policy and are not
independent. What ``interval="auto"`` takes; how often each holds is in ``docs/statistics.md``:

| statistic | scores | interval |
|---|---|---|
| mean, gap | any | skew-t (``statistics/mean.py``) |
| mean, gap | every score 0 or 1 | exact binomial (``statistics/success.py``) |
| mean | rates of ``episodes=`` episodes each, one task | beta-binomial |
| others | several tasks | bootstrap-se (``statistics/bootstrap.py``) |
| iqm, median, a function | one task | bootstrap-se |
| cvar, worst | one task | none: resampling cannot see beyond the lowest run |
| any | one run | none |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterling.statistics import bootstrap, mean, success
from sterling.statistics.aggregate import Aggregate, named
from sterling.statistics.scores import Failed, Given, Sample, sample
from sterling.types import Mistake

OF_MEAN = ("t", "skew-t", "exact", "wilson", "beta")
KINDS = ("auto", *OF_MEAN, *bootstrap.KINDS, "none")
Bounds = tuple[float | None, float | None]


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
        return f"{value} ({'one run, ' if self.n == 1 else ''}no interval)"

    def within(self, ends: tuple[float, float] | None) -> Estimate:
        """The same with its interval cut at what the true number cannot leave; None: nothing."""
        if ends is None or self.low is None or self.high is None:
            return self
        low, high = (min(max(end, ends[0]), ends[1]) for end in (self.low, self.high))
        return dataclasses.replace(self, low=low, high=high)

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
    within: tuple[float, float] | None = None,
) -> Estimate:
    """A statistic of ``(run,)`` or ``(run, task)`` scores with its interval at ``level``.

    ``what``: "mean", "median", "iqm", "gap", "cvar", "worst" (see ``statistics/aggregate.py``), or
    a function of a ``(run, task)`` array. ``interval``: see the head of this file for "auto"; or
    "t", "skew-t", "exact", "wilson", "beta", "bootstrap-se", "bootstrap", "bca", "percentile-t",
    "none".
    ``failed`` says what NaN counts as (``statistics/scores.py``). ``episodes``: the scores are
    success rates of that many episodes each. ``draws``: resamples of a bootstrap, made from
    ``key``; equal inputs and key give bit-equal intervals. ``shared``: a row is one run tried on
    every task, so its scores stay together. ``within``: what the true number cannot leave, as
    (0, 1) where scores are shares; the interval is cut there.

    One run gives no interval (``low`` and ``high`` are None). Runs that all scored the same give
    an interval of width zero, unless they are successes or failures: their spread says nothing of
    chance that did not show.

    Raises Mistake for no scores, for NaN without ``failed``, and for an interval that does not
    suit the statistic.
    """
    checked_level(level)
    if interval not in KINDS:
        raise Mistake(f"no interval is called {interval!r}; there are {', '.join(KINDS)}")
    made, aggregate = sample(scores, failed), named(what)
    value = aggregate.point(made)
    kind, (low, high) = _interval(
        made,
        aggregate,
        interval,
        level=level,
        key=key,
        episodes=episodes,
        draws=draws,
        shared=shared,
    )
    method = f"{kind}; {made.note}" if made.note else kind
    if low is not None and high is not None and math.isclose(low, high, rel_tol=1e-12):
        low = high = value  # equal but for rounding
    return Estimate(value, low, high, made.n, method, level).within(within)


def checked_level(level: float) -> None:
    """Raises Mistake for a level that is no share."""
    if not 0.0 < level < 1.0:
        raise Mistake(f"the level of an interval lies between 0 and 1; got {level}")


def _interval(
    made: Sample,
    aggregate: Aggregate,
    kind: str,
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
        made = dataclasses.replace(
            made, values=aggregate.cap - np.minimum(made.values, aggregate.cap)
        )
        aggregate = named("mean")
    if shared and made.tasks > 1 and aggregate.name == "mean":
        made = rows(made)  # the mean of a row is one score of one run
    if kind == "auto":
        kind = _suiting(made, aggregate, episodes)
    if kind in bootstrap.KINDS:
        return kind, bootstrap.interval(
            made, aggregate, kind, level=level, key=key, draws=draws, shared=shared
        )
    if kind not in OF_MEAN:
        return kind, (None, None)
    if aggregate.name != "mean":
        raise Mistake(f"interval={kind!r} is one of the mean; take 'bootstrap-se' for others")
    return kind, _of_mean(made, kind, level, episodes)


def _suiting(made: Sample, aggregate: Aggregate, episodes: int | None) -> str:
    """What "auto" takes."""
    success_only = success.is_success(made.values)
    if aggregate.name == "mean":
        if episodes is not None and made.tasks == 1:
            return "beta"
        return "exact" if success_only else "skew-t"
    if made.tasks == 1 and aggregate.extreme:
        return "none (the extreme of few runs; see tolerance)"
    if made.tasks == 1 and success_only:
        return "none (successes have a mean, no quartiles)"
    return "bootstrap-se"


def _of_mean(made: Sample, kind: str, level: float, episodes: int | None) -> Bounds:
    """The ends of an interval of the mean."""
    if kind in ("t", "skew-t"):
        if made.tasks > 1:
            return mean.over_tasks(made, level, kind == "skew-t")
        low, high = (mean.t if kind == "t" else mean.skew_t)(made.values, level)
        return float(low), float(high)
    rates = [success.rates(column) for column in made.columns]
    if kind == "exact" and not success.is_success(made.values):
        raise Mistake("interval='exact' counts successes; give scores of 0 and 1, or 'beta'")
    many = episodes or 1
    if kind == "beta":
        ends = [success.beta_binomial(column, many, level) for column in rates]
    elif kind == "wilson":
        ends = [success.wilson(float(c.mean()), float(c.size * many), level) for c in rates]
    else:
        ends = [success.exact(float(column.sum()), column.size, level) for column in rates]
    middles = np.array([column.mean() for column in rates])
    variances = np.array([column.var(ddof=1) / column.size for column in rates])
    lows, highs = np.array(ends).T
    low, high = success.joined(
        middles,
        lows,
        highs,
        variances=variances,
        freedoms=np.array(made.counts) - 1.0,
        level=level,
    )
    return float(low), float(high)


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
