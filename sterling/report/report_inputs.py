"""Collect the data of a report: the request, the runs read for it, and their comparisons."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from sterling.report.overall_scores import OverallComparison, compare_overall
from sterling.report.pairwise_contest import EnvironmentComparison, compare_on_environments
from sterling.report.runs.read_runs import RunResult, read_results
from sterling.report.runs.run_groups import RunGroup, group_results, unique_labels
from sterling.statistics import table as load_table
from sterling.statistics.scores.score_bounds import Bounds
from sterling.statistics.scores.score_table import FailedRule
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class ReportRequest:
    """What is to be reported."""

    metric: str = "return"
    alpha: float = 0.05  # chance of any wrong decision; intervals have level 1 - alpha
    failed: FailedRule = None  # the score a failed seed counts as; None: not decided
    table: str | None = None  # normalisation table; None: the one that knows the environments
    title: str = "Report"
    tasks: list[str] | None = None  # None: all
    about: str = "tendency"  # what is decided, or "mean"
    within: Bounds | None = None  # bounds of the scores; None: those that the runs declare

    @property
    def level(self) -> float:
        """Return the level of every interval."""
        return 1.0 - self.alpha

    @property
    def measure(self) -> str:
        """Return the name of the scores."""
        return "final return" if self.metric == "return" else self.metric


@dataclasses.dataclass(frozen=True)
class ReportData:
    """The runs, grouped and compared."""

    groups: list[RunGroup]
    comparisons: list[EnvironmentComparison]
    overall: list[OverallComparison]  # over several environments
    notes: list[str]
    request: ReportRequest

    @property
    def labels(self) -> list[str]:
        """Return the labels in the order that fixes their colours."""
        return unique_labels(self.groups)

    @property
    def results(self) -> list[RunResult]:
        """Return every run."""
        return [one for group in self.groups for one in group.results]

    def group(self, label: str, environment: str) -> RunGroup:
        """Return the group of a label on an environment."""
        wanted = (label, environment)
        return next(one for one in self.groups if (one.label, one.environment) == wanted)


def collect_report_data(runs: Sequence[str | Path], request: ReportRequest) -> ReportData:
    """Read, group and compare the runs; raises Mistake where no run is found."""
    if not 0.0 < request.alpha < 1.0:
        raise Mistake(f"alpha must lie between 0 and 1; got {request.alpha}")
    if request.table:
        load_table(request.table)  # raises for an unknown one, even if it is not used
    results, notes = read_results(runs, request.metric)
    groups, more = group_results(results, request.tasks)
    made = compare_on_environments(
        groups,
        alpha=request.alpha,
        failed=request.failed,
        about=request.about,
        within=request.within,
    )
    over = compare_overall(groups, level=request.level, failed=request.failed)
    return ReportData(groups, made, over, [*notes, *more], request)
