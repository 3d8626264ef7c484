"""Our scores beside the published ones: the verdicts of ``sterling check-scores``.

A published score with its tolerance is a band; ours is an interval. Where the interval lies
decides, so that a score is called below only where chance does not explain it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from sterling.references import published
from sterling.references.published import Reference
from sterling.report.runs import Result
from sterling.report.text import steps
from sterling.statistics import Estimate, Headline, headline
from sterling.statistics.scores import Failed

BELOW, WITHIN, ABOVE = "below", "within", "above"
AT_LEAST, UNCLEAR = "within or above", "cannot tell"
CLOSE = 0.1  # budgets that differ by less than this share count as the same
FINAL = ("last", "last or best model", "mean of the last 3 evaluations")  # what ours is like


@dataclasses.dataclass(frozen=True)
class Check:
    """One published score, and where ours lies."""

    reference: Reference
    verdict: str  # below, within, above, within or above, cannot tell
    differs: list[str]  # what makes the two not the same measurement

    @property
    def comparable(self) -> bool:
        """Whether the two were measured alike."""
        return not self.differs


def check(result: Result, made: Headline, metric: str = "return") -> list[Check]:
    """Every published score of this algorithm and task, the most alike first."""
    found = published.find(result.algorithm, result.environment)
    choice = len({one.observations for one in found}) > 1  # a task with and without pixels
    checks = [
        Check(one, _verdict(made, one.low, one.high), differences(one, result, choice))
        for one in found
        if one.metric == metric
    ]
    return sorted(checks, key=lambda one: len(one.differs))


def _verdict(made: Headline, low: float, high: float) -> str:
    """Of a run, some seeds of which may have failed: below where even the others are, else as with
    failures at the worst, where that is known."""
    if made.made is not None:
        return verdict(made.made, low, high)
    if made.survivors is not None and verdict(made.survivors, low, high) == BELOW:
        return BELOW
    return verdict(made.at_worst, low, high) if made.at_worst is not None else UNCLEAR


def verdict(made: Estimate, low: float, high: float) -> str:
    """Where an interval lies against a published band.

    below: wholly under it. above: wholly over it. within: wholly inside. within or above: it
    reaches over the upper edge only. cannot tell: it straddles the lower edge, or is no interval
    (one seed).
    """
    if made.low is None or made.high is None:
        return UNCLEAR
    if made.high < low:
        return BELOW
    if made.low > high:
        return ABOVE
    if made.low < low:
        return UNCLEAR
    return WITHIN if made.high <= high else AT_LEAST


def differences(one: Reference, result: Result, choice: bool = False) -> list[str]:
    """In what the published measurement was another one than ours.

    ``choice``: the task is known both from states and from pixels; ours is taken to be states.
    """
    told = []
    theirs, ours = published.version(one.environment), published.version(result.environment)
    if theirs is not None and theirs != ours:
        told.append(theirs)
    if choice and one.observations == "pixels":
        told.append("pixels")
    told += _budget(one, result)
    if one.returns == "training":
        told.append("training returns")
    elif one.taken not in FINAL:
        told.append(one.taken)
    if one.policy == "stochastic" and one.returns == "evaluation":
        told.append("stochastic policy")
    return told


def _budget(one: Reference, result: Result) -> list[str]:
    if one.steps_kind != "environment steps" or result.steps is None:
        return []
    if one.steps is None:
        return ["steps not stated"]
    near = abs(result.steps - one.steps) <= CLOSE * one.steps
    return [] if near else [f"{steps(one.steps)} steps"]


def finals(results: Sequence[Result], failed: Failed = None) -> Iterator[tuple[Result, Headline]]:
    """The finished results, of which a seed did not fail, and what may be said of their mean;
    ``failed``: what a failed seed counts as."""
    for result in results:
        if result.scores is not None and np.isfinite(result.scores).any():
            scores = [float(x) for x in result.scores]
            yield result, headline(scores, failed=failed, within=result.within)
