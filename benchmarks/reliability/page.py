"""Make the tables of docs/reliability.md from the counts of both campaigns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PAGE = "docs/reliability.md"
Part = dict[str, Any]


def write() -> None:
    """Write the marked parts of docs/reliability.md anew."""
    from docs import generate

    (ROOT / PAGE).write_text(generate.renewed(PAGE))


def damage() -> list[str]:
    """Return the table of damaged files and where its counts come from."""
    path = RESULTS / "reliability-damage.json"
    head = "| file | tried | held | refused in one line |"
    rows = [(kind, each["tried"], each["held"], each["refused"]) for kind, each in _parts(path)]
    return [*evidence.lines(path), *_table(head, rows)]


def kills() -> list[str]:
    """Return the table of killed runs and where its counts come from."""
    path = RESULTS / "reliability-kills.json"
    head = "| kind of run | tried | held | kills |"
    rows = [(kind, each["cases"], each["held"], each["kills"]) for kind, each in _parts(path)]
    return [*evidence.lines(path), *_table(head, rows)]


def _parts(path: Path) -> list[tuple[str, Part]]:
    return list(json.loads(path.read_text())["parts"].items())


def _table(head: str, rows: list[tuple[Any, ...]]) -> list[str]:
    lines = [head, "|---|---|---|---|"]
    return lines + [f"| {' | '.join(map(str, row))} |" for row in rows]
