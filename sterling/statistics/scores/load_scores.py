"""Load scores from files: run folders of Sterling, and CSV or JSON of any other library.

| file | content |
|---|---|
| run folder | one algorithm on one environment; seeds are runs; failed seeds are NaN |
| CSV, long | a ``score`` column and any of ``algorithm``, ``task``, ``run``, ``step`` |
| CSV, wide | one column of scores per algorithm, or per task with ``columns="task"``; |
| | with a ``step`` column each is the curve of one run (of several with a ``run`` column) |
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

from sterling.statistics.scores import score_csv
from sterling.statistics.scores.run_folder_scores import read_folders
from sterling.statistics.scores.score_table import Scores
from sterling.types import Mistake

Paths = Sequence[str | os.PathLike[str]]


def load(
    *paths: str | os.PathLike[str],
    columns: str = "algorithm",
    what: str = "final",
    metric: str = "return",
) -> dict[str, Scores]:
    """Load the scores of each algorithm named in the files.

    Run folders of one algorithm on several environments become its tasks. Where two folders hold
    the same algorithm on the same environment, the folders' names become the labels. ``columns``:
    what the plain columns of a wide CSV, or the keys of a flat JSON, are: "algorithm" or "task".
    ``what``: "final" evaluation, or the training "curve" (run folders and CSV with steps).
    ``metric``: which number of a run folder.

    Raises Mistake for files that are missing or of another form.
    """
    if columns not in ("algorithm", "task") or what not in ("final", "curve"):
        raise Mistake(
            "columns must be 'algorithm' or 'task', and what 'final' or 'curve'; got "
            f"columns={columns!r} and what={what!r}"
        )
    found: dict[str, Scores] = {}
    given = [Path(path) for path in paths]
    if not given:
        raise Mistake("there is nothing to load; give run folders, a CSV or a JSON file")
    folders = [path for path in given if path.is_dir()]
    parts = [read_folders(folders, what, metric)] if folders else []
    parts += [_read_file(path, columns) for path in given if path not in folders]
    for part in parts:
        double = set(part) & set(found)
        if double:
            raise Mistake(f"{min(double)!r} is in two of the files; rename one of them")
        found |= part
    return found


def load_single_algorithm(paths: Paths, **options: Any) -> Scores:
    """Load files that hold one algorithm; plain columns are its tasks."""
    found = load(*paths, **({"columns": "task"} | options))
    if len(found) != 1:
        raise Mistake(
            f"the files hold {', '.join(found)}; for several algorithms use "
            "sterling.statistics.load"
        )
    return next(iter(found.values()))


def _read_file(path: Path, columns: str) -> dict[str, Scores]:
    if not path.is_file():
        raise Mistake(f"{path} does not exist; give a run folder, a CSV or a JSON file")
    if path.suffix.lower() == ".json":
        return _read_json(path, columns)
    if path.suffix.lower() in (".csv", ".tsv"):
        return score_csv.read_csv(path, columns)
    raise Mistake(f"{path} is neither a run folder nor .csv, .tsv or .json")


def _read_json(path: Path, columns: str) -> dict[str, Scores]:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise Mistake(f"{path} is not valid JSON ({error})") from error
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        return score_csv.scores_from_records(content, path)
    if isinstance(content, list):
        return {path.stem: Scores.from_values(score_csv.parse_numbers(content), name=path.stem)}
    if not isinstance(content, Mapping) or not content:
        raise Mistake(f"{path} must hold scores by algorithm or by task")
    nested = [isinstance(value, Mapping) for value in content.values()]
    if all(nested):
        return {name: score_csv.scores_from_columns(value, name) for name, value in content.items()}
    if any(nested):
        raise Mistake(f"{path} mixes tables and lists; give every algorithm the same form")
    if columns == "task":
        return {path.stem: score_csv.scores_from_columns(content, path.stem)}
    return {
        name: Scores.from_values(score_csv.parse_numbers(value), name=name)
        for name, value in content.items()
    }


Scores.read_files = load_single_algorithm  # what ``Scores.load`` calls
