"""Compare our scores with published ones: the verdicts of ``sterling check-scores``.

A published score with its tolerance is a band; ours is an interval. The position of the interval
decides, so that a score is called below only where chance does not explain it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from sterling.references import published_scores
from sterling.references.published_scores import Reference
from sterling.report.runs.early_stops import early_stop_text
from sterling.report.runs.read_runs import RunResult
from sterling.report.text_tables import format_steps
from sterling.statistics import Estimate, Headline, Table, headline
from sterling.statistics.scores.score_table import FailedRule
from sterling.types import Mistake

BELOW, WITHIN, ABOVE = "below", "within", "above"
AT_LEAST, UNCLEAR = "within or above", "cannot tell"
SAME_BUDGET_SHARE = 0.1  # budgets that differ by less than this share count as the same
# published scores of these kinds are measured like ours
FINAL_SCORES = (
    "last",
    "last or best model",
    "mean of the last 3 evaluations",
)


@dataclasses.dataclass(frozen=True)
class PublishedCheck:
    """One published score, and where ours lies relative to it."""

    reference: Reference
    verdict: str  # below, within, above, within or above, cannot tell
    differs: list[str]  # how the two measurements differ

    @property
    def comparable(self) -> bool:
        """Whether the two were measured alike."""
        return not self.differs


def check_published(
    result: RunResult, made: Headline, metric: str = "return"
) -> list[PublishedCheck]:
    """Return the checks against every published score of this task, the most alike first."""
    found = published_scores.find(result.algorithm, result.environment)
    choice = len({one.observations for one in found}) > 1  # the task exists with and without pixels
    checks = [
        PublishedCheck(
            one,
            _headline_verdict(made, one.low, one.high),
            measurement_differences(one, result, choice),
        )
        for one in found
        if one.metric == metric
    ]
    return sorted(checks, key=lambda one: len(one.differs))


def _headline_verdict(made: Headline, low: float, high: float) -> str:
    """Return the verdict on a run, some seeds of which may have failed.

    below: even the seeds that did not fail lie below. within, above: the mean lies there even if
    failures count as the worst possible score. Otherwise: cannot tell.
    """
    if made.made is not None:
        return band_verdict(made.made, low, high)
    if made.survivors is not None and band_verdict(made.survivors, low, high) == BELOW:
        return BELOW
    worst = UNCLEAR if made.at_worst is None else band_verdict(made.at_worst, low, high)
    return UNCLEAR if worst == BELOW else worst


def band_verdict(made: Estimate, low: float, high: float) -> str:
    """Return where an interval lies relative to a published band.

    below: entirely under it. above: entirely over it. within: entirely inside. within or above: it
    extends over the upper edge only. cannot tell: it contains the lower edge, or there is no
    interval (one seed).
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


def measurement_differences(one: Reference, result: RunResult, choice: bool = False) -> list[str]:
    """Return how the published measurement differs from ours.

    ``choice``: the task exists both from states and from pixels; ours is taken to be from states.
    """
    differences = []
    theirs, ours = (
        published_scores.version_suffix(one.environment),
        published_scores.version_suffix(result.environment),
    )
    if theirs is not None and theirs != ours:
        differences.append(theirs)
    if choice and one.observations == "pixels":
        differences.append("pixels")
    differences += _budget_difference(one, result)
    if early_stop_text(result.config, result.result):
        differences.append("stopped early")
    if one.returns == "training":
        differences.append("training returns")
    elif one.taken not in FINAL_SCORES:
        differences.append(one.taken)
    if one.policy == "stochastic" and one.returns == "evaluation":
        differences.append("stochastic policy")
    return differences


def _budget_difference(one: Reference, result: RunResult) -> list[str]:
    if one.steps_kind != "environment steps" or result.steps is None:
        return []
    if one.steps is None:
        return ["steps not stated"]
    near = abs(result.steps - one.steps) <= SAME_BUDGET_SHARE * one.steps
    return [] if near else [f"{format_steps(one.steps)} steps"]


def finished_headlines(
    results: Sequence[RunResult], failed: FailedRule = None
) -> Iterator[tuple[RunResult, Headline]]:
    """Yield each result with a seed that did not fail, and its headline.

    ``failed``: the score that a failed seed counts as.
    """
    for result in results:
        if result.scores is not None and np.isfinite(result.scores).any():
            scores = [float(x) for x in result.scores]
            yield result, headline(scores, failed=failed, within=result.within)


def normalised_headline(
    result: RunResult, table: Table, failed: FailedRule = None
) -> Headline | None:
    """Return the headline of a result's scores normalised by a table; None if it lacks the
    environment. ``failed`` is in units of the scores. A higher normalised score is better."""
    assert result.scores is not None
    try:
        low, high = table.references(result.environment)
    except Mistake:
        return None

    def scaled(score: float) -> float:
        return (score - low) / (high - low)

    scores = [scaled(float(x)) for x in result.scores]
    within = None
    if result.within is not None:
        ends = [None if end is None else scaled(end) for end in result.within]
        within = (ends[0], ends[1]) if high > low else (ends[1], ends[0])
    rule = scaled(failed) if isinstance(failed, int | float) else failed
    return headline(scores, failed=rule, within=within)
