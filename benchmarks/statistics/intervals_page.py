"""The Markdown page of the coverage and width of intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import evidence

Results = dict[str, Any]


def markdown(path: Path) -> str:
    """Return both tables of a file of results, and where its numbers come from."""
    results = json.loads(path.read_text())
    lines = [
        "# How often 95 % intervals of a mean hold it, and how wide they are",
        "",
        *evidence.lines(path),
        f"{results['trials']:,} draws a cell (standard error 0.5 points at 95 %), "
        f"{results['resamples']:,} resamples for the bootstraps; fixed keys.",
        "",
        "Each cell: coverage, then mean width. Below 93 % in bold. *declared*: `estimate` with "
        "`within=`; *not declared*: `estimate` without it, which is t; *percentile*: rliable's "
        "interval. *bounded*: how often a score lay at a declared bound, so that the interval was "
        "the bounded one.",
        "",
        *_one_task(results["one_task"]),
        "",
        f"## The mean over 10 tasks ({results['task_trials']} draws a cell)",
        "",
        *_many_tasks(results["many_tasks"]),
    ]
    return "\n".join(lines) + "\n"


def _one_task(rows: list[Results]) -> list[str]:
    head = ["scores", "n", "declared", "not declared (t)", "BCa", "percentile", "bounded"]
    cells = [
        [
            row["shape"], str(row["n"]),
            *(_cell(row.get(kind)) for kind in ("declared", "undeclared", "bca", "percentile")),
            f"{100 * row['bounded']:.0f} %" if "bounded" in row else "-",
        ]
        for row in rows
    ]  # fmt: skip
    return _table(head, cells)


def _many_tasks(rows: list[Results]) -> list[str]:
    cells = [
        [row["shape"], str(row["n"]), _cell(row["default"]), _cell(row["percentile"])]
        for row in rows
    ]
    return _table(["scores", "n", "default", "percentile"], cells)


def _cell(found: Results | None) -> str:
    if found is None:
        return "-"
    held = f"{100 * found['held']:.0f} %"
    return f"{held if found['held'] >= 0.93 else f'**{held}**'}, {found['width']:.3g}"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    made = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(row) + " |" for row in made]
