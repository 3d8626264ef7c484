"""Scores from CSV files, long or wide.

With a column of steps the rows are curves. Runs need not be logged at the same steps: between its
own a run is a straight line, before the first and after the last it is level, as curves of run
folders are; from a "nan" to the next score it has failed.
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

from sterling.statistics.scores import Scores
from sterling.types import Mistake

MEANINGS = {
    "score": ("score", "return", "value", "reward", "episodic_return", "normalized_score"),
    "algorithm": ("algorithm", "algo", "agent", "method", "name"),
    "task": ("task", "environment", "env", "env_id", "game"),
    "run": ("run", "seed", "run_id"),
    "step": ("step", "steps", "global_step", "timestep", "timesteps", "frame", "frames"),
}
MOST = 10_000  # points of time that are kept where every run has its own
Row = dict[str, str]


def read_csv(path: Path, columns: str) -> dict[str, Scores]:
    """The scores of each algorithm in a file with a head line."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        read = csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        rows, names = list(read), list(read.fieldnames or [])
    if not rows:
        raise Mistake(f"{path} has no rows under its head line")
    meaning = _meanings(names)
    if "score" in meaning:
        return _long(rows, meaning, path)
    index = {meaning.get("run"), meaning.get("step"), ""}
    wide = [name for name in names if name not in index and not _is_index(rows, name)]
    if "step" in meaning and wide:
        return _long(*_melted(rows, wide, meaning, columns), path)
    return _wide(rows, wide, columns, path)


def from_records(records: Sequence[Mapping[str, Any]], path: Path) -> dict[str, Scores]:
    """The scores of each algorithm in a list of objects, one score to each; null has failed."""
    rows = [
        {name: "nan" if value is None else str(value) for name, value in record.items()}
        for record in records
    ]
    meaning = _meanings(list(rows[0]))
    if "score" not in meaning:
        raise Mistake(f"{path} has no {' or '.join(MEANINGS['score'][:3])} in its objects")
    lost = [record for record in records if record.keys() != records[0].keys()]
    if lost:
        raise Mistake(f"{path}: the objects differ in their names; give each the same")
    return _long(rows, meaning, path)


def _meanings(names: list[str]) -> dict[str, str]:
    """What is meant -> the column that says it."""
    return {
        what: name
        for what, words in MEANINGS.items()
        for name in names
        if name.strip().lower() in words
    }


def _is_index(rows: list[Row], name: str) -> bool:
    """Whether an unnamed column just counts the rows."""
    return name.lower().startswith("unnamed")


def _wide(rows: list[Row], names: list[str], columns: str, path: Path) -> dict[str, Scores]:
    """A column of scores per algorithm, or per task."""
    from sterling.statistics.load import from_columns

    if not names:
        raise Mistake(f"{path} has no column of scores; name one 'score', or one per {columns}")
    lists = {
        name: [_number(row[name], path) for row in rows if (row[name] or "").strip()]
        for name in names
    }
    if columns == "task":
        return {path.stem: from_columns(lists, path.stem)}
    return {name: Scores.of(values, name=name) for name, values in lists.items() if values}


def _melted(
    rows: list[Row], names: list[str], meaning: dict[str, str], columns: str
) -> tuple[list[Row], dict[str, str]]:
    """A column of points of time per algorithm, or per task, as one score to a row."""
    index = {what: meaning[what] for what in ("run", "step") if what in meaning}
    melted = [
        {"score": row[name], columns: name} | {what: row[index[what]] for what in index}
        for name in names
        for row in rows
    ]
    return melted, {what: what for what in melted[0]}


def _long(rows: list[Row], meaning: dict[str, str], path: Path) -> dict[str, Scores]:
    """One score to a row."""
    cells: dict[str, dict[tuple[str, str, float], float]] = {}
    counted: dict[tuple[str, str, float], int] = {}
    for row in rows:
        text = (row[meaning["score"]] or "").strip()
        if not text:
            continue
        algorithm = row[meaning["algorithm"]] if "algorithm" in meaning else path.stem
        task = row[meaning["task"]] if "task" in meaning else "0"
        step = _step(row[meaning["step"]], path) if "step" in meaning else 0.0
        place = (algorithm, task, step)
        counted[place] = counted.get(place, 0) + 1
        run = row[meaning["run"]] if "run" in meaning else str(counted[place] - 1)
        at = (run, task, step)
        table = cells.setdefault(algorithm, {})
        if at in table:
            when = f", step {step:g}" if "step" in meaning else ""
            raise Mistake(f"{path} has two scores of {algorithm}, task {task}, run {run}{when}")
        table[at] = _number(text, path)
    return {name: _table(table, name, "step" in meaning) for name, table in cells.items()}


def _table(cells: dict[tuple[str, str, float], float], name: str, timed: bool) -> Scores:
    """Named cells as an array; a run of which nothing is there was not made."""
    runs, tasks = (list(dict.fromkeys(at[axis] for at in cells)) for axis in range(2))
    logs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (run, task, step), score in cells.items():
        logs.setdefault((run, task), []).append((step, score))
    axis = _axis(np.unique([step for *_, step in cells]))
    values = np.full((len(runs), len(tasks), axis.size), np.nan)
    ends = np.full(values.shape[:2], np.nan)
    for (run, task), log in logs.items():
        steps, scores = np.array(sorted(log)).T
        at = runs.index(run), tasks.index(task)
        values[at], ends[at] = _drawn(axis, steps, scores), steps[-1]
    kept: dict[str, Any] = {"runs": runs, "tasks": tasks, "mask": np.isfinite(ends), "name": name}
    if not timed:
        return Scores.of(values[..., 0], **kept)
    return dataclasses.replace(Scores.of(values, steps=axis, **kept), ends=ends)


def _axis(steps: Float[np.ndarray, "any"]) -> Float[np.ndarray, "time"]:
    """The last step, and of those before it as many as are kept."""
    stride = -(-steps.size // MOST)
    return steps[::-1][::stride][::-1]


def _drawn(
    axis: Float[np.ndarray, "time"],
    steps: Float[np.ndarray, "row"],
    scores: Float[np.ndarray, "row"],
) -> Float[np.ndarray, "time"]:
    """A run's log at other steps; NaN where the last thing that it says is that it failed."""
    known = ~np.isnan(scores)
    if not known.any():
        return np.full(axis.size, np.nan)
    before = np.maximum(np.searchsorted(steps, axis, "right") - 1, 0)
    return np.where(known[before], np.interp(axis, steps[known], scores[known]), np.nan)


def _number(text: str, path: Path) -> float:
    try:
        made = float(text)
    except (TypeError, ValueError):
        raise Mistake(f"{path}: {text!r} is no score; leave a cell empty or write nan") from None
    if math.isinf(made):
        raise Mistake(f"{path}: {text!r} is no score; write nan where a run failed")
    return made


def _step(text: str, path: Path) -> float:
    try:
        made = float(text)
    except (TypeError, ValueError):
        made = math.nan
    if not math.isfinite(made):
        raise Mistake(f"{path}: {text!r} is no step; write a number there")
    return made
