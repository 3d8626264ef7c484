"""Read scores from CSV files, long or wide.

With a column of steps the rows are curves. Runs may be logged at different steps: between its own
rows a run is interpolated linearly, before the first and after the last it is constant, as the
curves of run folders are; from a "nan" to the next score it has failed.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling.statistics.scores.score_table import Scores
from sterling.types import Mistake

COLUMN_NAMES = {
    "score": ("score", "return", "value", "reward", "episodic_return", "normalized_score"),
    "algorithm": ("algorithm", "algo", "agent", "method", "name"),
    "task": ("task", "environment", "env", "env_id", "game"),
    "run": ("run", "seed", "run_id"),
    "step": ("step", "steps", "global_step", "timestep", "timesteps", "frame", "frames"),
}
MAX_TIME_POINTS = 10_000  # steps kept where runs are logged at different steps
Row = dict[str, str]


def read_csv(path: Path, columns: str) -> dict[str, Scores]:
    """Read a CSV file with a header line and return the scores of each algorithm."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        read = csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        rows, names = list(read), list(read.fieldnames or [])
    if not rows:
        raise Mistake(f"{path} has no rows below its header line")
    meaning = _recognise_columns(names)
    if "score" in meaning:
        return _scores_from_long(rows, meaning, path)
    index = {meaning.get("run"), meaning.get("step"), ""}
    wide = [name for name in names if name not in index and not _is_index_column(rows, name)]
    if "step" in meaning and wide:
        return _scores_from_long(*_melt(rows, wide, meaning, columns), path)
    return _scores_from_wide(rows, wide, columns, path)


def scores_from_records(records: Sequence[Mapping[str, Any]], path: Path) -> dict[str, Scores]:
    """Return each algorithm's scores from a list of objects, one score each; null means failed."""
    rows = [
        {name: "nan" if value is None else str(value) for name, value in record.items()}
        for record in records
    ]
    meaning = _recognise_columns(list(rows[0]))
    if "score" not in meaning:
        raise Mistake(f"{path} has no {' or '.join(COLUMN_NAMES['score'][:3])} in its objects")
    differing = [record for record in records if record.keys() != records[0].keys()]
    if differing:
        raise Mistake(f"{path}: the objects have different keys; give all of them the same")
    return _scores_from_long(rows, meaning, path)


def scores_from_columns(columns: Mapping[str, Any], name: str) -> Scores:
    """Return ``{task: scores}``, possibly of different lengths, as a table with a mask."""
    lists = {task: np.atleast_1d(parse_numbers(values)) for task, values in columns.items()}
    if any(values.ndim != 1 or not values.size for values in lists.values()):
        raise Mistake(f"{name}: every task needs a list with one number per run")
    most = max(values.size for values in lists.values())
    table, mask = np.full((most, len(lists)), np.nan), np.zeros((most, len(lists)), bool)
    for at, values in enumerate(lists.values()):
        table[: values.size, at], mask[: values.size, at] = values, True
    return Scores.from_values(table, tasks=list(lists), mask=mask, name=name)


def parse_numbers(values: Any) -> np.ndarray:
    """Convert to floats; null stands for a failed run."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise Mistake(f"scores must be numbers or null, in lists of one length ({error})") from None


def _recognise_columns(names: list[str]) -> dict[str, str]:
    """Map each meaning (score, algorithm, task, run, step) to the column that has it."""
    return {
        what: name
        for what, words in COLUMN_NAMES.items()
        for name in names
        if name.strip().lower() in words
    }


def _is_index_column(rows: list[Row], name: str) -> bool:
    """Whether an unnamed column only counts the rows."""
    return name.lower().startswith("unnamed")


def _scores_from_wide(
    rows: list[Row], names: list[str], columns: str, path: Path
) -> dict[str, Scores]:
    """Read a file with one column of scores per algorithm, or per task."""
    if not names:
        raise Mistake(
            f"{path} has no column of scores; name a column 'score', or have one per {columns}"
        )
    lists = {
        name: [_parse_score(row[name], path) for row in rows if (row[name] or "").strip()]
        for name in names
    }
    if columns == "task":
        return {path.stem: scores_from_columns(lists, path.stem)}
    return {name: Scores.from_values(values, name=name) for name, values in lists.items() if values}


def _melt(
    rows: list[Row], names: list[str], meaning: dict[str, str], columns: str
) -> tuple[list[Row], dict[str, str]]:
    """Turn a wide file with a step column into long rows, one score each."""
    index = {what: meaning[what] for what in ("run", "step") if what in meaning}
    melted = [
        {"score": row[name], columns: name} | {what: row[index[what]] for what in index}
        for name in names
        for row in rows
    ]
    return melted, {what: what for what in melted[0]}


def _scores_from_long(rows: list[Row], meaning: dict[str, str], path: Path) -> dict[str, Scores]:
    """Read rows that hold one score each."""
    cells: dict[str, dict[tuple[str, str, float], float]] = {}
    counted: dict[tuple[str, str, float], int] = {}
    for row in rows:
        text = (row[meaning["score"]] or "").strip()
        if not text:
            continue
        algorithm = row[meaning["algorithm"]] if "algorithm" in meaning else path.stem
        task = row[meaning["task"]] if "task" in meaning else "0"
        step = _parse_step(row[meaning["step"]], path) if "step" in meaning else 0.0
        place = (algorithm, task, step)
        counted[place] = counted.get(place, 0) + 1
        run = row[meaning["run"]] if "run" in meaning else str(counted[place] - 1)
        at = (run, task, step)
        table = cells.setdefault(algorithm, {})
        if at in table:
            when = f", step {step:g}" if "step" in meaning else ""
            raise Mistake(f"{path} has two scores of {algorithm}, task {task}, run {run}{when}")
        table[at] = _parse_score(text, path)
    return {
        name: _scores_from_cells(table, name, "step" in meaning) for name, table in cells.items()
    }


def _scores_from_cells(
    cells: dict[tuple[str, str, float], float], name: str, timed: bool
) -> Scores:
    """Arrange named cells as an array; a run without any cell on a task is masked."""
    runs, tasks = (list(dict.fromkeys(at[axis] for at in cells)) for axis in range(2))
    logs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (run, task, step), score in cells.items():
        logs.setdefault((run, task), []).append((step, score))
    axis = _thin_steps(np.unique([step for *_, step in cells]))
    values = np.full((len(runs), len(tasks), axis.size), np.nan)
    ends = np.full(values.shape[:2], np.nan)
    for (run, task), log in logs.items():
        steps, scores = np.array(sorted(log)).T
        at = runs.index(run), tasks.index(task)
        values[at], ends[at] = _interpolate_run(axis, steps, scores), steps[-1]
    kept: dict[str, Any] = {"runs": runs, "tasks": tasks, "mask": np.isfinite(ends), "name": name}
    if not timed:
        return Scores.from_values(values[..., 0], **kept)
    return dataclasses.replace(Scores.from_values(values, steps=axis, **kept), ends=ends)


def _thin_steps(steps: Float[np.ndarray, "any"]) -> Float[np.ndarray, "time"]:
    """Return at most ``MAX_TIME_POINTS`` of the steps, evenly, always with the last."""
    stride = -(-steps.size // MAX_TIME_POINTS)
    return steps[::-1][::stride][::-1]


def _interpolate_run(
    axis: Float[np.ndarray, "time"],
    steps: Float[np.ndarray, "row"],
    scores: Float[np.ndarray, "row"],
) -> Float[np.ndarray, "time"]:
    """Interpolate a run's log at other steps; NaN wherever its latest row says that it failed."""
    known = ~np.isnan(scores)
    if not known.any():
        return np.full(axis.size, np.nan)
    before = np.maximum(np.searchsorted(steps, axis, "right") - 1, 0)
    return np.where(known[before], np.interp(axis, steps[known], scores[known]), np.nan)


def _parse_score(text: str, path: Path) -> float:
    """Convert a cell to a float; raises Mistake for text and for infinity."""
    try:
        made = float(text)
    except (TypeError, ValueError):
        raise Mistake(
            f"{path}: {text!r} is not a score; leave the cell empty or write nan"
        ) from None
    if math.isinf(made):
        raise Mistake(f"{path}: {text!r} is not a score; write nan where a run failed")
    return made


def _parse_step(text: str, path: Path) -> float:
    """Convert a cell to a finite step; raises Mistake for anything else."""
    try:
        made = float(text)
    except (TypeError, ValueError):
        made = math.nan
    if not math.isfinite(made):
        raise Mistake(f"{path}: {text!r} is not a step; write a number there")
    return made
