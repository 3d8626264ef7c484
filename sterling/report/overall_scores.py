"""Compare labels over several environments: score tables over the environments they share."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sterling.report.runs.run_groups import RunGroup, unique_environments, unique_labels
from sterling.statistics import Estimate, Scores, estimate, improve
from sterling.statistics.scores.score_bounds import Bounds
from sterling.statistics.scores.score_table import FailedRule


@dataclasses.dataclass(frozen=True)
class OverallComparison:
    """How likely a run of one label is better than one of another, over shared environments."""

    first: str
    second: str
    environments: list[str]
    made: Estimate  # P(a run of first scores better than a run of second)
    direction: str = "higher"  # which scores are better, or "lower"


RunLog = tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]  # steps and returns of a run
TrainingMeans = tuple[float, dict[str, Estimate]]  # steps covered, and label -> mean return


def scores_table(
    groups: Sequence[RunGroup], label: str, tasks: Sequence[str], failed: FailedRule = None
) -> Scores:
    """Return one label's scores as (run, task), masked where a task has fewer runs.

    Failed runs count as ``failed`` says; they are NaN where it is None.
    """
    columns = [_scores_on(groups, label, task, failed) for task in tasks]
    most = max(column.size for column in columns)
    values = np.full((most, len(tasks)), np.nan)
    mask = np.zeros((most, len(tasks)), bool)
    for at, column in enumerate(columns):
        values[: column.size, at] = column
        mask[: column.size, at] = True
    return Scores.from_values(values, tasks=list(tasks), mask=mask, name=label)


def shared_environments(groups: Sequence[RunGroup], among: Sequence[str]) -> list[str]:
    """Return the environments on which all of these labels have a run that did not fail."""
    return [
        world
        for world in unique_environments(groups)
        if all(np.isfinite(_scores_on(groups, label, world)).any() for label in among)
    ]


def compare_overall(
    groups: Sequence[RunGroup], *, level: float = 0.95, failed: FailedRule = None
) -> list[OverallComparison]:
    """Compare each pair of labels that share at least two environments.

    Without ``failed`` only pairs without failed seeds there.
    """
    found, lower_is_better = [], all(one.better < 0 for one in groups)
    direction = "lower" if lower_is_better else "higher"
    for first, second in itertools.combinations(unique_labels(groups), 2):
        tasks = shared_environments(groups, (first, second))
        if len(tasks) < 2:
            continue
        tables = [scores_table(groups, label, tasks, failed) for label in (first, second)]
        if failed is None and any(has_failed(one) for one in tables):
            continue
        if lower_is_better:
            tables = [dataclasses.replace(one, values=-one.values) for one in tables]
        made = improve(*tables, level=level, failed="exclude")
        if made.value >= 0.5:
            found.append(OverallComparison(first, second, tasks, made, direction))
            continue
        turned = improve(*reversed(tables), level=level, failed="exclude")
        # the better one comes first
        found.append(OverallComparison(second, first, tasks, turned, direction))
    return found


def has_failed(scores: Scores) -> bool:
    """Whether a run failed and nothing says what it counts as."""
    return bool((np.isnan(scores.values) & scores.mask).any())


def mean_training_returns(
    groups: Sequence[RunGroup], *, level: float = 0.95
) -> dict[str, TrainingMeans]:
    """Return the mean return over training per environment and label, and the steps it covers.

    All labels of an environment are measured over the same first steps: as far as the shortest log
    goes.
    """
    found: dict[str, TrainingMeans] = {}
    for world in unique_environments(groups):
        logs = {g.label: g.logs() for g in groups if g.environment == world}
        lasts = [steps[-1] for rows in logs.values() for steps, _ in rows]
        end = float(min(lasts, default=0.0))
        ends = {g.label: g.within for g in groups if g.environment == world}
        made = {
            label: _mean_training_return(rows, end, level, ends[label])
            for label, rows in logs.items()
        }
        known = {label: one for label, one in made.items() if one is not None}
        if known:
            found[world] = (end, known)
    return found


def _mean_training_return(
    logs: Sequence[RunLog], end: float, level: float, within: Bounds | None
) -> Estimate | None:
    """Average each run's return from 0 to ``end``, then estimate the mean over runs.

    None where the shortest log ends before a run's first value.
    """
    if not logs or end <= 0.0 or any(steps[0] > end for steps, _ in logs):
        return None
    areas = [_time_average(steps, values, end) for steps, values in logs]
    return estimate(areas, level=level, within=within)


def _time_average(
    steps: Float[np.ndarray, "row"], values: Float[np.ndarray, "row"], end: float
) -> float:
    """Return the curve's average from 0 to ``end``: linear between rows, constant before the first.

    How often a run was logged, and how far beyond ``end``, changes nothing.
    """
    at = np.concatenate([[0.0], steps[steps < end], [end]])
    return float(np.trapezoid(np.interp(at, steps, values), at)) / end


def _scores_on(
    groups: Sequence[RunGroup], label: str, world: str, failed: FailedRule = None
) -> np.ndarray:
    for one in groups:
        if (one.label, one.environment) == (label, world):
            return one.scores_with(failed)
    return np.zeros(0)
