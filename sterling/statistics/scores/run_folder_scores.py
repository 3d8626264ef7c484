"""Read scores from Sterling's run folders, without importing the training code."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterling.lookup import user_imports
from sterling.statistics.scores.score_table import Scores
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class FolderScores:
    """The scores of one run folder: one algorithm, one environment, several seeds."""

    folder: Path
    algorithm: str
    environment: str
    seeds: tuple[str, ...]
    values: np.ndarray  # (seed,) or (seed, time); NaN from where a seed failed
    steps: np.ndarray | None


def read_folders(folders: list[Path], what: str, metric: str) -> dict[str, Scores]:
    """Read run folders and return scores by algorithm; each environment is a task."""
    read = [
        _read_training_curve(f, metric) if what == "curve" else _read_final_scores(f, metric)
        for f in folders
    ]
    pairs = [(folder_scores.algorithm, folder_scores.environment) for folder_scores in read]
    by_name: dict[str, list[FolderScores]] = {}
    for folder_scores in read:
        is_repeated = pairs.count((folder_scores.algorithm, folder_scores.environment)) > 1
        by_name.setdefault(
            folder_scores.folder.resolve().name if is_repeated else folder_scores.algorithm, []
        ).append(folder_scores)
    return {name: _join_environments(name, parts) for name, parts in by_name.items()}


def _join_environments(name: str, parts: list[FolderScores]) -> Scores:
    """Join one algorithm's environments as columns; a seed missing on an environment is masked."""
    tasks = [part.environment for part in parts]
    if len(set(tasks)) < len(tasks):
        raise Mistake(f"two folders named {name!r} hold runs on the same environment; rename one")
    runs = list(dict.fromkeys(seed for part in parts for seed in part.seeds))
    parts = _align_steps(parts)
    shape = (len(runs), len(tasks), *parts[0].values.shape[1:])
    values, mask = np.full(shape, np.nan), np.zeros(shape[:2], bool)
    for column, part in enumerate(parts):
        at = [runs.index(seed) for seed in part.seeds]
        values[at, column], mask[at, column] = part.values, True
    return Scores.from_values(
        values, runs=runs, tasks=tasks, mask=mask, name=name, steps=parts[0].steps
    )


def _align_steps(parts: list[FolderScores]) -> list[FolderScores]:
    """Interpolate the curves of all environments at the first one's steps, up to the shortest."""
    if parts[0].steps is None:
        return parts
    last = min(part.steps[-1] for part in parts if part.steps is not None)
    steps = parts[0].steps[parts[0].steps <= last]
    if not steps.size:
        raise Mistake("the curves have no steps in common; load the environments one by one")
    made = []
    for part in parts:
        rows = [np.interp(steps, part.steps, row) for row in part.values]  # type: ignore[arg-type]
        made.append(dataclasses.replace(part, values=np.array(rows), steps=steps))
    return made


def _read_final_scores(folder: Path, metric: str) -> FolderScores:
    """Read the scores of the final evaluation from ``result.json``."""
    result = _read_json(folder / "result.json")
    found = result.get("final", {}).get(metric)
    if found is None:
        has = ", ".join(result.get("final", {})) or "nothing"
        raise Mistake(f"{folder} has no final {metric!r}; its result.json holds {has}")
    values = np.array(found["per_seed"], np.float64)  # null is NaN: a failed seed
    return FolderScores(
        folder, result["algorithm"], result["environment"], _seed_names(result), values, None
    )


def _read_training_curve(folder: Path, metric: str) -> FolderScores:
    """Read the training curve from ``metrics.jsonl``.

    Rows in which a seed finished no episode are interpolated linearly; before the first known value
    and after the last the curve is constant. From a seed's failure on the values are NaN.
    """
    config = _read_json(folder / "config.json")
    rows = _read_rows(folder / "metrics.jsonl")
    name = metric_column(rows, metric)
    rows = [row for row in rows if name in row]
    if not rows:
        raise Mistake(f"{folder} has logged no {name!r} yet")
    steps = np.array([row_progress(row) for row in rows], np.float64)
    logged = np.array([row[name] for row in rows], np.float64).T
    values = np.array([_interpolate_missing(steps, seed) for seed in logged])
    seeds = config.get("seeds") or list(range(len(values)))
    for row in rows:
        for seed in row.get("failed", []):
            values[seeds.index(seed), steps >= row_progress(row)] = np.nan
    algorithm, world = (
        user_imports.short_name(config[name]) for name in ("algorithm", "environment")
    )
    return FolderScores(folder, algorithm, world, tuple(map(str, seeds)), values, steps)


def row_progress(row: dict[str, Any]) -> int:
    """Return a row's position in the run: gradient updates if the log counts them, else steps.

    Logs of runs that learn from a dataset count updates.
    """
    return int(row.get("update", row["step"]))


def metric_column(rows: Sequence[dict[str, Any]], metric: str) -> str:
    """Return the column that holds ``metric``: the one of that name, else of evaluations if there
    are any, else of training."""
    if "/" in metric and any(metric in row for row in rows):
        return metric
    evaluated = f"evaluation/{metric}"
    return evaluated if any(evaluated in row for row in rows) else f"data/{metric}"


def _interpolate_missing(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Interpolate NaN values linearly over ``steps``; leave an all-NaN curve as it is."""
    known = np.isfinite(values)
    return np.interp(steps, steps[known], values[known]) if known.any() else values


def _seed_names(result: dict[str, Any]) -> tuple[str, ...]:
    """Return the seeds of a result as strings."""
    return tuple(map(str, result["seeds"]))


def _read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises Mistake where the file is missing or damaged."""
    if not path.is_file():
        raise Mistake(f"{path.parent} has no {path.name}; is it the folder of a finished run?")
    try:
        return dict(json.loads(path.read_text()))
    except ValueError as error:
        raise Mistake(f"{path} is damaged ({error})") from error


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a log without its last line, which may be incomplete."""
    if not path.is_file():
        raise Mistake(f"{path.parent} has no {path.name}; is it the folder of a run?")
    *lines, _torn = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines]


def column_values(rows: list[dict[str, Any]], column: str) -> np.ndarray:
    """Return one column of a log, ``(row, seed)``. Raises :class:`Mistake` if it is damaged."""
    try:
        values = np.array([row[column] for row in rows], np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 2:
        raise Mistake(
            f"the log's {column!r} has no number for each seed in every row; restore the file, or "
            "delete the damaged rows"
        )
    return values
