"""Several environments together: tables of scores by label, over the environments they share."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from sterling.report.groups import Group, environments, labels
from sterling.statistics import Estimate, Scores, auc, improve
from sterling.statistics.scores import Failed


@dataclasses.dataclass(frozen=True)
class Better:
    """How likely a run of one label is better than one of another, over what both were run on."""

    first: str
    second: str
    environments: list[str]
    made: Estimate


Areas = tuple[float, dict[str, Estimate]]  # steps they were taken over, and label -> mean return


def table(groups: Sequence[Group], label: str, tasks: Sequence[str]) -> Scores:
    """One label's scores as (run, task); where a task has fewer runs the rest is masked."""
    columns = [_scores(groups, label, task) for task in tasks]
    most = max(column.size for column in columns)
    values = np.full((most, len(tasks)), np.nan)
    mask = np.zeros((most, len(tasks)), bool)
    for at, column in enumerate(columns):
        values[: column.size, at] = column
        mask[: column.size, at] = True
    return Scores.of(values, tasks=list(tasks), mask=mask, name=label)


def shared(groups: Sequence[Group], among: Sequence[str]) -> list[str]:
    """The environments on which all of these labels have at least one run that did not fail."""
    return [
        world
        for world in environments(groups)
        if all(np.isfinite(_scores(groups, label, world)).any() for label in among)
    ]


def better(groups: Sequence[Group], *, level: float = 0.95, failed: Failed = None) -> list[Better]:
    """Each pair of labels that share at least two environments."""
    found = []
    for first, second in itertools.combinations(labels(groups), 2):
        tasks = shared(groups, (first, second))
        if len(tasks) < 2:
            continue
        rule: Failed = "exclude" if failed is None else failed
        tables = [table(groups, label, tasks) for label in (first, second)]
        made = improve(*tables, level=level, failed=rule)
        if made.value >= 0.5:
            found.append(Better(first, second, tasks, made))
            continue
        turned = improve(*reversed(tables), level=level, failed=rule)
        found.append(Better(second, first, tasks, turned))  # the better one comes first
    return found


def areas(groups: Sequence[Group], *, level: float = 0.95) -> dict[str, Areas]:
    """Mean return over training per environment and label, and the steps it was taken over.

    All labels of an environment are measured over the same first steps: as far as the shortest
    log goes.
    """
    found: dict[str, Areas] = {}
    for world in environments(groups):
        curves = {g.label: g.curves() for g in groups if g.environment == world}
        curves = {label: pair for label, pair in curves.items() if pair[1].size}
        if not curves:
            continue
        end = min(
            steps[np.isfinite(values).all(0)].max(initial=0) for steps, values in curves.values()
        )
        ends = {g.label: g.within for g in groups if g.environment == world}
        made = {label: _area(*pair, end, level) for label, pair in curves.items()}
        known = {label: one.within(ends[label]) for label, one in made.items() if one is not None}
        if known:
            found[world] = (float(end), known)
    return found


def _area(steps: np.ndarray, values: np.ndarray, end: float, level: float) -> Estimate | None:
    """The time average of each run up to ``end``, then over runs; what came before the first
    finished episode counts as that episode's window."""
    kept = steps <= end * (1 + 1e-9)
    if not kept.any():
        return None
    rows = values[:, kept]
    if not np.isfinite(rows).any(1).all():
        return None  # the shortest log ends before this one's first number
    first = np.isfinite(rows).argmax(1)
    opening = rows[np.arange(len(rows)), first][:, None]
    rows = np.where(np.isfinite(rows), rows, opening)
    return auc(rows, steps[kept], level=level)


def _scores(groups: Sequence[Group], label: str, world: str) -> np.ndarray:
    for one in groups:
        if (one.label, one.environment) == (label, world):
            return one.scores
    return np.zeros(0)
