"""Several environments together: tables of scores by label, over the environments they share."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sterling.report.groups import Group, environments, labels
from sterling.statistics import Estimate, Scores, estimate, improve
from sterling.statistics.declared import Bounds
from sterling.statistics.scores import Failed


@dataclasses.dataclass(frozen=True)
class Better:
    """How likely a run of one label is better than one of another, over what both were run on."""

    first: str
    second: str
    environments: list[str]
    made: Estimate  # P(a run of first scores better than one of second)
    direction: str = "higher"  # which scores are better, or "lower"


Log = tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]  # steps and returns of a run
Areas = tuple[float, dict[str, Estimate]]  # steps they were taken over, and label -> mean return


def table(
    groups: Sequence[Group], label: str, tasks: Sequence[str], failed: Failed = None
) -> Scores:
    """One label's scores as (run, task); where a task has fewer runs the rest is masked.

    Failed runs count as ``failed`` says; they are NaN where it decides nothing.
    """
    columns = [_scores(groups, label, task, failed) for task in tasks]
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
    """Each pair of labels that share at least two environments; without ``failed`` those of which
    no seed failed there."""
    found, less = [], all(one.better < 0 for one in groups)
    direction = "lower" if less else "higher"
    for first, second in itertools.combinations(labels(groups), 2):
        tasks = shared(groups, (first, second))
        if len(tasks) < 2:
            continue
        tables = [table(groups, label, tasks, failed) for label in (first, second)]
        if failed is None and any(has_failed(one) for one in tables):
            continue
        if less:
            tables = [dataclasses.replace(one, values=-one.values) for one in tables]
        made = improve(*tables, level=level, failed="exclude")
        if made.value >= 0.5:
            found.append(Better(first, second, tasks, made, direction))
            continue
        turned = improve(*reversed(tables), level=level, failed="exclude")
        found.append(Better(second, first, tasks, turned, direction))  # the better one comes first
    return found


def has_failed(scores: Scores) -> bool:
    """Whether a run failed, of which nothing says what it counts as."""
    return bool((np.isnan(scores.values) & scores.mask).any())


def areas(groups: Sequence[Group], *, level: float = 0.95) -> dict[str, Areas]:
    """Mean return over training per environment and label, and the steps it was taken over.

    All labels of an environment are measured over the same first steps: as far as the shortest
    log goes.
    """
    found: dict[str, Areas] = {}
    for world in environments(groups):
        logs = {g.label: g.logs() for g in groups if g.environment == world}
        lasts = [steps[-1] for rows in logs.values() for steps, _ in rows]
        end = float(min(lasts, default=0.0))
        ends = {g.label: g.within for g in groups if g.environment == world}
        made = {label: _area(rows, end, level, ends[label]) for label, rows in logs.items()}
        known = {label: one for label, one in made.items() if one is not None}
        if known:
            found[world] = (end, known)
    return found


def _area(logs: Sequence[Log], end: float, level: float, within: Bounds | None) -> Estimate | None:
    """The time average of each run from 0 to ``end``, then over runs; none where the shortest log
    ends before a run's first number."""
    if not logs or end <= 0.0 or any(steps[0] > end for steps, _ in logs):
        return None
    areas = [_average(steps, values, end) for steps, values in logs]
    return estimate(areas, level=level, within=within)


def _average(
    steps: Float[np.ndarray, "row"], values: Float[np.ndarray, "row"], end: float
) -> float:
    """Straight lines between the rows, level before the first: how often a run was logged, and how
    far beyond ``end``, changes nothing."""
    at = np.concatenate([[0.0], steps[steps < end], [end]])
    return float(np.trapezoid(np.interp(at, steps, values), at)) / end


def _scores(groups: Sequence[Group], label: str, world: str, failed: Failed = None) -> np.ndarray:
    for one in groups:
        if (one.label, one.environment) == (label, world):
            return one.scores_with(failed)
    return np.zeros(0)
