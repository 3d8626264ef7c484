"""What a report is made from: the question, and the runs read for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from sterling.report.contest import Contest, contests
from sterling.report.groups import Group, gather, labels
from sterling.report.overall import Better, better
from sterling.report.runs import Result, read
from sterling.statistics.scores import Failed
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be reported."""

    metric: str = "return"
    alpha: float = 0.05  # of any wrong decision on an environment; intervals are at 1 - alpha
    failed: Failed = None  # what a failed seed counts as; None: nothing is decided
    table: str | None = None  # to normalise by; None: the one that knows the environments
    title: str = "Report"
    tasks: list[str] | None = None  # None: all
    about: str = "tendency"  # what is decided, or "mean"
    within: Bounds | None = None  # bounds of the scores; None: as the runs say

    @property
    def level(self) -> float:
        """Of every interval."""
        return 1.0 - self.alpha

    @property
    def measure(self) -> str:
        """What the scores are."""
        return "final return" if self.metric == "return" else self.metric


@dataclasses.dataclass(frozen=True)
class Material:
    """The runs, put together."""

    groups: list[Group]
    contests: list[Contest]
    over: list[Better]  # over several environments
    notes: list[str]
    asked: Request

    @property
    def labels(self) -> list[str]:
        """In the order that fixes their colours."""
        return labels(self.groups)

    @property
    def results(self) -> list[Result]:
        """Every run."""
        return [one for group in self.groups for one in group.results]

    def group(self, label: str, environment: str) -> Group:
        """The one of this name."""
        wanted = (label, environment)
        return next(one for one in self.groups if (one.label, one.environment) == wanted)


def collect(runs: Sequence[str | Path], asked: Request) -> Material:
    """Read, group and compare; raises Mistake where no run is found."""
    if not 0.0 < asked.alpha < 1.0:
        raise Mistake(f"alpha lies between 0 and 1; got {asked.alpha}")
    results, notes = read(runs, asked.metric)
    groups, more = gather(results, asked.tasks)
    made = contests(
        groups, alpha=asked.alpha, failed=asked.failed, about=asked.about, within=asked.within
    )
    over = better(groups, level=asked.level, failed=asked.failed)
    return Material(groups, made, over, [*notes, *more], asked)
