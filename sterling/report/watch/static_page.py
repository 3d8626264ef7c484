"""Write the page of runs as files that a browser opens without a server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from sterling.report.watch.watch_server import PAGE
from sterling.report.watch.watched_runs import WatchedRuns
from sterling.system.atomic_files import explain_write_errors
from sterling.system.mistake import Mistake

MAX_COMPARED = 40  # with more runs, comparing takes long and is left to `sterling compare`


def write_static_page(root: Path, folder: Path) -> Path:
    """Write the page of the runs below ``root`` into ``folder``; return ``folder/index.html``.

    All metrics, settings, films and pictures are included. Raise :class:`Mistake` if there is no
    run, or ``folder`` cannot be written.
    """
    runs = WatchedRuns(root)
    listed = runs.summaries()
    if not listed:
        raise Mistake(f"{root} holds no runs. Name a folder of runs.")
    with explain_write_errors(folder):
        (folder / "data").mkdir(parents=True, exist_ok=True)
        for name in ("watch.css", "watch.js", "chart.js"):
            shutil.copyfile(PAGE / name, folder / name)
        content = {
            "root": str(runs.root.name),
            "runs": listed,
            "compare": _comparison(runs, listed),
        }
        _write_data(folder / "data" / "runs.js", "runs", content)
        for number, each in enumerate(listed):
            _write_run(runs, folder, number, each)
        page = (PAGE / "watch.html").read_text(encoding="utf-8")
        data = '<script src="data/runs.js"></script>\n<script src="chart.js">'
        made = page.replace('<script src="chart.js">', data)
        (folder / "index.html").write_text(made, encoding="utf-8")
    return folder / "index.html"


def _write_run(runs: WatchedRuns, folder: Path, number: int, summary: dict[str, Any]) -> None:
    """Write the data of one run, and copy its films and pictures."""
    name = summary["name"]
    details = runs.details(name)
    points = {column: runs.points(name, column, -1, 0) for column in summary["columns"]}
    place = folder / "files" / str(number)
    for file in (*details["films"], *details["pictures"]):
        try:
            source, _ = runs.file(name, file)
        except KeyError:  # a link that leads out of the run's folder
            continue
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place / file)
    content = {"details": details, "points": points}
    _write_data(folder / "data" / f"{number}.js", str(number), content)


def _write_data(path: Path, name: str, content: Any) -> None:
    """Write a script that hands ``content`` to the page: pages of files may not read JSON."""
    plain = json.loads(json.dumps(content, default=str), parse_constant=lambda word: None)
    text = json.dumps(plain, separators=(",", ":")).replace("</", "<\\/")
    path.write_text(
        f"(window.sterlingData ||= {{}})[{json.dumps(name)}] = {text};\n", encoding="utf-8"
    )


def _comparison(runs: WatchedRuns, listed: list[dict[str, Any]]) -> str:
    if len(listed) > MAX_COMPARED:
        return f"there are {len(listed)} runs: compare some of them by `sterling compare RUN RUN`"
    return runs.compare([each["name"] for each in listed])
