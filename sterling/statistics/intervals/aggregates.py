"""Aggregates: one number from a table of runs by tasks.

| name | of x[run, task] | source |
|---|---|---|
| mean | mean over tasks of the mean over runs | |
| median | median over tasks of the mean over runs | |
| iqm | mean of the middle half of all scores | Agarwal et al. 2021 (arXiv:2108.13264) |
| gap | gamma - mean(min(x, gamma)), gamma = 1; lower is better | same |
| cvar | mean of the worst quarter of the task means | Rockafellar & Uryasev 2000 |
| worst | the lowest task mean | |

With one task, median, cvar and worst are taken over its runs. Every statistic here is a function of
*weights*, how often each score was drawn, so a bootstrap sorts the scores only once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Num

from sterling.statistics.scores.score_table import Sample
from sterling.types import Mistake

Weights = Num[np.ndarray, "draw score"]
Results = Float[np.ndarray, "draw"]
QUARTER = 0.25


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """A statistic by name; ``weighted(sample, weights)`` gives its value for each draw."""

    name: str
    weighted: Callable[[Sample, Weights], Results]
    extreme: bool = False  # rests on the edge of the scores, where resampling says little
    ordered: bool = False  # sorts the task means, which noise reorders
    cap: float | None = None  # for a gap, which is cap - mean(min(x, cap))

    def point(self, sample: Sample) -> float:
        """Return the statistic of the scores as they are, without resampling."""
        if self.name == "mean":  # bit-equal to what its intervals compute
            return float(np.mean([column.mean() for column in sample.columns]))
        return float(self.weighted(sample, np.ones((1, sample.values.size)))[0])


def gap(gamma: float | int = 1.0) -> Aggregate:
    """Return the optimality gap: the mean shortfall of scores, capped at ``gamma``, from
    ``gamma``."""

    def weighted(sample: Sample, weights: Weights) -> Results:
        capped = dataclasses.replace(sample, values=np.minimum(sample.values, gamma))
        return gamma - _mean(capped, weights)

    return Aggregate("gap" if gamma == 1.0 else f"gap({gamma:g})", weighted, cap=float(gamma))


def cvar(share: float = QUARTER) -> Aggregate:
    """Return the CVaR: the mean of the worst ``share`` of the task means.

    With one task, of the runs. Where ``share`` is not a whole number of them, the last one counts
    in part.
    """
    if not 0.0 < share <= 1.0:
        raise Mistake(f"the share of cvar must lie in (0, 1]; got {share}")
    weighted = functools.partial(_mean_of_worst, share=share)
    return Aggregate("cvar" if share == QUARTER else f"cvar({share:g})", weighted, True, True)


def aggregate_from_function(function: Callable[[np.ndarray], float]) -> Aggregate:
    """Wrap any function of a ``(run, task)`` array; slower, since every draw becomes an array."""

    def weighted(sample: Sample, weights: Weights) -> Results:
        if len(set(sample.counts)) > 1:
            raise Mistake("a function of a table needs equally many runs on every task")
        shape = (sample.tasks, sample.n)
        rows = [np.repeat(sample.values, row.astype(int)).reshape(shape).T for row in weights]
        return np.array([float(function(row)) for row in rows])

    return Aggregate(getattr(function, "__name__", "function"), weighted)


def find_aggregate(what: str | Callable[..., object] | Aggregate) -> Aggregate:
    """Return the statistic called ``what``, or wrap a function; Mistake for an unknown name."""
    if isinstance(what, Aggregate):
        return what
    if not isinstance(what, str):
        return aggregate_from_function(what)  # type: ignore[arg-type]
    if what not in AGGREGATES_BY_NAME:
        raise Mistake(f"unknown statistic {what!r}; use one of {', '.join(AGGREGATES_BY_NAME)}")
    return AGGREGATES_BY_NAME[what]


def task_means(sample: Sample, weights: Weights) -> Float[np.ndarray, "draw task"]:
    """Return each task's mean over runs, for every draw."""
    places = np.repeat(np.arange(sample.tasks), sample.counts)
    spread = np.zeros((sample.values.size, sample.tasks))
    spread[np.arange(sample.values.size), places] = sample.values / np.repeat(
        sample.counts, sample.counts
    )
    return weights.astype(np.float64) @ spread


def _mean(sample: Sample, weights: Weights) -> Results:
    share = np.repeat(sample.counts, sample.counts) * float(sample.tasks)
    return weights.astype(np.float64) @ (sample.values / share)


def _median(sample: Sample, weights: Weights) -> Results:
    if sample.tasks == 1:
        return _median_of_runs(sample, weights, 0.5)
    return np.median(task_means(sample, weights), axis=1)


def _worst(sample: Sample, weights: Weights) -> Results:
    if sample.tasks == 1:
        return np.where(weights > 0, sample.values, np.inf).min(1)
    return task_means(sample, weights).min(1)


def _iqm(sample: Sample, weights: Weights) -> Results:
    """Return ``scipy.stats.trim_mean(x, 0.25, axis=None)`` where all tasks have equally many runs.

    Otherwise runs are weighted so that every task counts the same, and a quarter of the weight is
    cut off at either end.
    """
    order = np.argsort(sample.values, kind="stable")
    if len(set(sample.counts)) == 1:
        mass, whole = weights[:, order], sample.values.size
        cut = float(int(QUARTER * whole))
    else:
        share = sample.values.size / sample.tasks / np.repeat(sample.counts, sample.counts)
        mass, whole = (weights * share)[:, order], sample.values.size
        cut = QUARTER * whole
    kept = _mass_between(mass, cut, whole - cut)
    return kept.astype(np.float64) @ (sample.values[order] / (whole - 2 * cut))


def _mass_between(mass: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return how much of each score's weight lies between two levels of the running total."""
    kind = np.int32 if mass.dtype.kind in "iu" else np.float64
    upto = np.cumsum(mass, axis=1, dtype=kind)
    np.clip(upto, kind(low), kind(high), out=upto)
    return np.diff(upto, axis=1, prepend=np.full((len(upto), 1), low, kind))


def _median_of_runs(sample: Sample, weights: Weights, share: float) -> Results:
    """Return the median of runs: the mean of the one or two in the middle."""
    order = np.argsort(sample.values, kind="stable")
    upto = np.cumsum(weights[:, order], axis=1)
    whole = upto[:, -1:]
    lower = (upto < (whole + 1) // 2).sum(1)
    upper = (upto < whole // 2 + 1).sum(1)
    values = sample.values[order]
    return (values[lower] * (1.0 - share)) + values[upper] * share


def _mean_of_worst(sample: Sample, weights: Weights, share: float) -> Results:
    if sample.tasks > 1:
        means = np.sort(task_means(sample, weights), axis=1)
        mass = _mass_between(np.ones_like(means), 0.0, share * sample.tasks)
        return (means * mass).sum(1) / (share * sample.tasks)
    order = np.argsort(sample.values, kind="stable")
    whole = float(sample.values.size)
    mass = _mass_between(weights[:, order].astype(np.float64), 0.0, share * whole)
    return mass @ sample.values[order] / (share * whole)


AGGREGATES_BY_NAME = {
    "mean": Aggregate("mean", _mean),
    "median": Aggregate("median", _median, ordered=True),
    "iqm": Aggregate("iqm", _iqm),
    "gap": gap(),
    "cvar": cvar(),
    "worst": Aggregate("worst", _worst, extreme=True, ordered=True),
}
