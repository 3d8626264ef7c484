"""The runs below a folder, as plain values for the page: a list, curves, details, comparisons."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from sterling.report.runs.read_return_bounds import return_limits
from sterling.report.runs.run_folders import is_run_folder
from sterling.report.watch.metric_points import column_points
from sterling.report.watch.metrics_tail import MetricsTail
from sterling.report.watch.run_facts import (
    episodes_text,
    flat_settings,
    panel_names,
    run_warnings,
)
from sterling.report.watch.run_state import describe, stored_seeds
from sterling.statistics.scores.run_folder_scores import metric_column
from sterling.system.mistake import Mistake

MAX_DEPTH = 5  # folders below the watched one that are searched for runs
MAX_RUNS = 1000
RETURN = ["return"]  # a column of the page: evaluation's where there is any, else training's
RETURN_COLUMNS = ("evaluation/return", "data/return")
NOT_SEARCHED = ("parts", "checkpoints", "tensorboard")
FILM_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
PICTURE_TYPES = {".png": "image/png"}


class WatchedRun:
    """One run's folder, read again and again."""

    def __init__(self, name: str, folder: Path):
        self.name, self.folder = name, folder
        self.tail = MetricsTail(folder / "metrics.jsonl")
        self._described: dict[str, Any] = {}
        self._mark: tuple[Any, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return the run's row of the table: what ``describe`` returns, with its ``name``,
        ``columns`` of metrics, number of ``rows`` and the log's ``generation``."""
        self.tail.poll()
        mark = (self.tail.generation, len(self.tail.rows), *map(_file_mark, self._files()))
        if mark != self._mark or self._described["state"] == "running":
            self._described, self._mark = describe(self.folder, self.tail.rows), mark
        problems = list(self._described["problems"])
        if self.tail.broken:
            problems.append(f"{self.tail.broken} broken lines of metrics.jsonl were left out")
        return {
            **self._described,
            "problems": problems,
            "name": self.name,
            "columns": self.columns,
            "rows": len(self.tail.rows),
            "generation": self.tail.generation,
        }

    @property
    def columns(self) -> list[str]:
        """Return the columns of numbers that the log has."""
        names = {name for row in (self.tail.rows[:1] + self.tail.rows[-1:]) for name in row}
        names |= {name for row in self.tail.rows if "evaluation/return" in row for name in row}
        return [*RETURN[: any(name in names for name in RETURN_COLUMNS)],
                *sorted(name for name in names if "/" in name)]  # fmt: skip

    def points(self, column: str, generation: int, after: int) -> dict[str, Any]:
        """Return a column's points from row ``after`` on, or from the first if the log was
        rewritten since ``generation``.

        ``rows``: the number of rows read; the others as :func:`column_points` returns them. The
        next call asks from its ``changes_from`` on; these points replace those from ``kept`` on.
        """
        self.tail.poll()
        rows = self.tail.rows
        after = after if generation == self.tail.generation and after <= len(rows) else 0
        column = metric_column(rows, "return") if column in RETURN else column
        seeds = stored_seeds(self._read("config.json"))
        made = column_points(rows, column, after, seeds, self._bounds(column))
        return {"generation": self.tail.generation, "after": after, "rows": len(rows), **made}

    def details(self) -> dict[str, Any]:
        """Return what the run's own page shows: settings, films, pictures, warnings, last rows."""
        content = self._read("config.json")
        names = sorted(path.name for path in self.folder.iterdir() if path.is_file())
        return {
            "settings": flat_settings(content),
            "about": {name: content.get(name) for name in ("versions", "hardware", "git", "time")},
            "result": self._read("result.json"),
            "films": [name for name in names if Path(name).suffix in FILM_TYPES],
            "pictures": [name for name in names if Path(name).suffix in PICTURE_TYPES],
            "files": names,
            "warnings": run_warnings(self.folder),
            "episodes": episodes_text(self.folder),
            "log": self.tail.rows[-100:],
        }

    def _bounds(self, column: str) -> Any:
        if not column.endswith("/return"):
            return None
        try:
            return return_limits(self._read("config.json"), self._read("result.json"))
        except (Mistake, TypeError, ValueError, AttributeError):
            return None

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _files(self) -> list[Path]:
        return [self.folder / name for name in ("config.json", "result.json")]


class WatchedRuns:
    """All runs below a folder; safe to use from several threads."""

    def __init__(self, root: Path):
        self.root = root.resolve()
        self._runs: dict[str, WatchedRun] = {}
        self._lock = threading.RLock()

    def summaries(self) -> list[dict[str, Any]]:
        """Return the rows of all runs, by name; runs that are new since the last call included."""
        with self._lock:
            self._find_runs()
            made = [run.summary() for run in self._runs.values()]
        return [one | {"panel": name} for one, name in zip(made, panel_names(made), strict=True)]

    def points(self, name: str, column: str, generation: int, after: int) -> dict[str, Any]:
        """Return new points of a run's column; see :meth:`WatchedRun.points`."""
        with self._lock:
            return self._run(name).points(column, generation, after)

    def details(self, name: str) -> dict[str, Any]:
        """Return what the page of a run shows."""
        with self._lock:
            return self._run(name).details()

    def file(self, name: str, file: str) -> tuple[Path, str]:
        """Return the path and type of a film or picture of a run. Raise KeyError for any other
        file, and for one that is not in the run's folder."""
        folder = self._run(name).folder.resolve()
        path = (folder / file).resolve()
        kind = (FILM_TYPES | PICTURE_TYPES).get(path.suffix)
        if path.parent != folder or kind is None or not path.is_file():
            raise KeyError(file)
        return path, kind

    def compare(self, names: list[str]) -> str:
        """Return what ``sterling compare`` says about runs; a mistake is returned as its line."""
        from sterling.report.compare_text import compare_folders

        try:
            return compare_folders([self._run(name).folder for name in names])
        except Mistake as error:
            return str(error)

    def _run(self, name: str) -> WatchedRun:
        with self._lock:
            if name not in self._runs:  # the server was started after the page was opened
                self._find_runs()
            return self._runs[name]

    def _find_runs(self) -> None:
        found = find_run_folders(self.root)
        self._runs = {n: self._runs.get(n) or WatchedRun(n, path) for n, path in found.items()}


def find_run_folders(root: Path) -> dict[str, Path]:
    """Return the folders of runs in and below ``root`` by their names relative to it."""
    found: dict[str, Path] = {}
    for place, folders, files in os.walk(root):
        path = Path(place)
        depth = len(path.relative_to(root).parts)
        is_run = "config.json" in files and is_run_folder(path)
        if is_run:
            found[str(path.relative_to(root)) if depth else root.name] = path
        folders[:] = [] if is_run or depth >= MAX_DEPTH else sorted(
            name for name in folders if name not in NOT_SEARCHED and not name.startswith(".")
        )  # fmt: skip
        if len(found) >= MAX_RUNS:
            break
    return found


def _file_mark(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size
