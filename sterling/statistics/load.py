"""Scores from files: run folders of Sterling, and CSV or JSON of any other library.

| file | holds |
|---|---|
| run folder | one algorithm on one environment; seeds are runs; failed seeds NaN |
| CSV, long | a ``score`` column and any of ``algorithm``, ``task``, ``run``, ``step`` |
| CSV, wide | one column of scores per algorithm, or per task with ``columns="task"``; |
| | beside a ``step`` column each is the curve of one run (of several with a ``run`` column) |
| JSON | ``{task: [scores]}`` or ``{algorithm: [scores]}`` (see ``columns``), |
| | ``{algorithm: {task: [scores]}}``, ``{algorithm: [[a run's scores on tasks]]}``, |
| | or a list of objects with the names of a long CSV's columns |

Empty cells are runs that were not made; "nan" is a failed run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterling.statistics import rows as long
from sterling.statistics.folders import read_folders
from sterling.statistics.scores import Scores
from sterling.types import Mistake

Paths = Sequence[str | os.PathLike[str]]


def load(
    *paths: str | os.PathLike[str],
    columns: str = "algorithm",
    what: str = "final",
    metric: str = "return",
) -> dict[str, Scores]:
    """The scores of each algorithm named in the files.

    Run folders of one algorithm on several environments become its tasks. Where two folders hold
    the same algorithm on the same environment they are told apart by the folders' names.
    ``columns``: what the bare columns of a wide CSV, or the keys of a flat JSON, are: "algorithm"
    or "task". ``what``: "final" evaluation, or the training "curve" (run folders and CSV with
    steps). ``metric``: which number of a run folder.

    Raises Mistake for files that are missing or of another form.
    """
    if columns not in ("algorithm", "task") or what not in ("final", "curve"):
        raise Mistake("load takes columns='algorithm'|'task' and what='final'|'curve'")
    found: dict[str, Scores] = {}
    given = [Path(path) for path in paths]
    if not given:
        raise Mistake("there is nothing to load; name run folders, a CSV or a JSON file")
    folders = [path for path in given if path.is_dir()]
    parts = [read_folders(folders, what, metric)] if folders else []
    parts += [_read_file(path, columns) for path in given if path not in folders]
    for part in parts:
        double = set(part) & set(found)
        if double:
            raise Mistake(f"{min(double)!r} is in two of the files; give each its own name")
        found |= part
    return found


def load_one(paths: Paths, **options: Any) -> Scores:
    """The same, where the files hold one algorithm; bare columns are its tasks."""
    found = load(*paths, **({"columns": "task"} | options))
    if len(found) != 1:
        raise Mistake(f"the files hold {', '.join(found)}; take sterling.statistics.load")
    return next(iter(found.values()))


def _read_file(path: Path, columns: str) -> dict[str, Scores]:
    if not path.is_file():
        raise Mistake(f"there is no {path}; name a run folder, a CSV or a JSON file")
    if path.suffix.lower() == ".json":
        return _read_json(path, columns)
    if path.suffix.lower() in (".csv", ".tsv"):
        return long.read_csv(path, columns)
    raise Mistake(f"{path} is neither a run folder nor .csv, .tsv or .json")


def _read_json(path: Path, columns: str) -> dict[str, Scores]:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise Mistake(f"{path} is no JSON ({error})") from error
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        return long.from_records(content, path)
    if isinstance(content, list):
        return {path.stem: Scores.of(_numbers(content), name=path.stem)}
    if not isinstance(content, Mapping) or not content:
        raise Mistake(f"{path} must hold scores by algorithm or by task")
    nested = [isinstance(value, Mapping) for value in content.values()]
    if all(nested):
        return {name: from_columns(value, name) for name, value in content.items()}
    if any(nested):
        raise Mistake(f"{path} mixes tables and lists; give every algorithm the same form")
    if columns == "task":
        return {path.stem: from_columns(content, path.stem)}
    return {name: Scores.of(_numbers(value), name=name) for name, value in content.items()}


def from_columns(columns: Mapping[str, Any], name: str) -> Scores:
    """``{task: scores}``, perhaps of different lengths, as a table with a mask."""
    lists = {task: np.atleast_1d(_numbers(values)) for task, values in columns.items()}
    if any(values.ndim != 1 or not values.size for values in lists.values()):
        raise Mistake(f"{name}: every task needs a list with one number per run")
    most = max(values.size for values in lists.values())
    table, mask = np.full((most, len(lists)), np.nan), np.zeros((most, len(lists)), bool)
    for at, values in enumerate(lists.values()):
        table[: values.size, at], mask[: values.size, at] = values, True
    return Scores.of(table, tasks=list(lists), mask=mask, name=name)


def _numbers(values: Any) -> np.ndarray:
    """Numbers, with null for a failed run."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise Mistake(f"scores must be numbers or null, in lists of one length ({error})") from None
