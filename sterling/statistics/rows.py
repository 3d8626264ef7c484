"""Scores from CSV files, long or wide."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterling.statistics.scores import Scores
from sterling.types import Mistake

MEANINGS = {
    "score": ("score", "return", "value", "reward", "episodic_return", "normalized_score"),
    "algorithm": ("algorithm", "algo", "agent", "method", "name"),
    "task": ("task", "environment", "env", "env_id", "game"),
    "run": ("run", "seed", "run_id"),
    "step": ("step", "steps", "global_step", "timestep", "frame"),
}
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
        step = _number(row[meaning["step"]], path) if "step" in meaning else math.nan
        place = (algorithm, task, 0.0 if math.isnan(step) else step)
        counted[place] = counted.get(place, 0) + 1
        run = row[meaning["run"]] if "run" in meaning else str(counted[place] - 1)
        at = (run, task, place[2])
        table = cells.setdefault(algorithm, {})
        if at in table:
            raise Mistake(f"{path} has two scores of {algorithm}, task {task}, run {run}")
        table[at] = _number(text, path)
    timed = "step" in meaning
    return {name: _table(table, name, timed) for name, table in cells.items()}


def _table(cells: dict[tuple[str, str, float], float], name: str, timed: bool) -> Scores:
    """Named cells as an array; what is not there was not made."""
    runs, tasks, steps = (_in_order(at[axis] for at in cells) for axis in range(3))
    steps = sorted(steps)  # type: ignore[type-var]
    values = np.full((len(runs), len(tasks), len(steps)), np.nan)
    mask = np.zeros(values.shape, bool)
    for (run, task, step), score in cells.items():
        at = runs.index(run), tasks.index(task), steps.index(step)
        values[at], mask[at] = score, True
    kept = {"runs": runs, "tasks": tasks, "mask": mask.any(2), "name": name}
    if not timed:
        return Scores.of(values[..., 0], **kept)  # type: ignore[arg-type]
    return Scores.of(values, steps=np.array(steps, np.float64), **kept)  # type: ignore[arg-type]


def _in_order(items: Iterable[object]) -> list[object]:
    """Each item once, as first seen."""
    return list(dict.fromkeys(items))


def _number(text: str, path: Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise Mistake(f"{path}: {text!r} is no score; leave a cell empty or write nan") from None
