"""How a study is getting on: a live table in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sterling.report.console import Output
from sterling.report.progress import duration
from sterling.tuning.outcome import short, shown
from sterling.tuning.search import Combine, Job

if TYPE_CHECKING:
    from rich.console import RenderableType

BEST = 5  # trials in the table
LINES = 10  # plain lines over a search


class Progress:
    """Told of waves and of every job that came in; see ``study.Watch``.

    ``trials`` is how many configurations there will be; ``combine`` makes one score of several
    seeds'.
    """

    def __init__(self, title: str, trials: int, combine: Combine, console: Console | None = None):
        self._title, self._trials, self._combine = title, trials, combine
        self._console = console or Output()
        self._best: dict[int, dict[str, Any]] = {}  # each trial's newest line
        self._stage, self._wave, self._tenth = "search", 0, -1
        self._done: set[int] = set()
        self._seconds, self._spent, self._unit = 0.0, 0, "steps"
        self._live: Live | None = None
        self._begun = False

    def __call__(self, stage: str, wave: Sequence[Job], line: dict[str, Any] | None) -> None:
        """A wave begins, or a job of it came in."""
        if not self._begun:  # not before: what is wrong with a study is said in one line
            self._begin()
        if line is None:
            if stage != self._stage:
                self._begin_test(stage, len(wave))
            return
        self._seconds = line["at"]
        self._unit = "updates" if "updates" in line["cost"] else "steps"
        self._spent += line["cost"][self._unit]
        if stage == "search":
            self._best[line["trial"]] = line
        self._done.add(line["id"])
        share = int(LINES * len(self._best) / self._trials)
        if self._live is None and stage == "search" and share > self._tenth:
            self._console.print("  ".join(self._facts()), soft_wrap=True)
            self._tenth = share

    def close(self) -> None:
        """Leave the table as it stands; twice does no harm."""
        if self._live is not None and self._live.is_started:
            with contextlib.suppress(OSError):  # the terminal is gone
                self._live.stop()

    def _begin(self) -> None:
        self._begun = True
        if self._console.is_terminal:
            self._live = Live(self, console=self._console, refresh_per_second=4)
            self._live.start()
        else:
            self._console.print(self._title, soft_wrap=True)

    def _begin_test(self, stage: str, jobs: int) -> None:
        self._stage, self._done, self._wave = stage, set(), jobs
        if self._live is None:
            self._console.print("testing the best and the defaults on fresh seeds", soft_wrap=True)

    def _facts(self) -> list[str]:
        facts = [
            f"{len(self._best)}/{self._trials} trials",
            f"{self._spent:,} {self._unit}",
            duration(self._seconds),
        ]
        if self._best and (first := self._ranked()[0]):
            facts.append(f"best {self._score(first):.4g} (trial {first['trial']})")
        return facts

    def _score(self, line: dict[str, Any]) -> float:
        """In the metric's own direction."""
        return float(line.get("better", 1) * self._combine(line["scores"]))

    def _ranked(self) -> list[dict[str, Any]]:
        """The trials trained longest first, of those the best first."""
        trials = self._best.values()
        return sorted(trials, key=lambda x: (-x["stop"], -self._combine(x["scores"]), x["trial"]))

    def __rich__(self) -> RenderableType:
        """Title, bar, and the best trials so far."""
        line = Table.grid(padding=(0, 2))
        testing = self._stage == "test"
        share = len(self._best) / self._trials
        bar = ProgressBar(total=1.0, completed=share, width=24, pulse=testing)
        line.add_row(bar, *self._facts())
        parts: list[RenderableType] = [Text(self._title, style="bold"), line]
        if testing:
            parts.append(Text("testing the best and the defaults on fresh seeds", style="cyan"))
        if self._best:
            parts.append(self._table())
        return Group(*parts)

    def _table(self) -> Table:
        ranked = self._ranked()[:BEST]
        table = Table(box=None, padding=(0, 1), header_style="dim")
        for name in ("trial", self._unit, "score", *ranked[0]["fields"]):
            table.add_column(name, justify="right")
        for line in ranked:
            fields = [short(value) for value in line["fields"].values()]
            score = f"{self._score(line):.4g}"
            table.add_row(str(line["trial"]), f"{line['stop']:,}", score, *fields)
        return table


def summary(made: dict[str, Any], path: Any, console: Console | None = None) -> None:
    """Print what a study came to: ``made`` as in report.json, ``path`` its folder."""
    console = console or Output()
    best, budget, unit = made["incumbent"], made["budget"], made.get("unit", "steps")
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("")
    table.add_column("on its tuning seeds", justify="right")
    table.add_column(f"on {len(made['test_seeds'])} fresh seeds")
    tuning = f"{best['tuning']['score']:.4g}"
    table.add_row(f"incumbent (trial {best['trial']})", tuning, shown(best["test"]), style="bold")
    table.add_row("defaults", "", shown(made["defaults"]["test"]))
    table.add_row("difference, seed by seed", "", shown(made["difference"]))
    console.print(table)
    console.print(
        f"{budget['trials']} trials, {budget[unit]:,} {unit} in "
        f"{duration(budget['search_wall_seconds'])}; test {budget['test_' + unit]:,} {unit}",
        style="dim",
    )
    console.print(made["command"], soft_wrap=True)
    if path is not None:
        console.print(f"report: {path}/report.md", soft_wrap=True)
