"""Show a study's progress: a live table in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sterling.report.live.console import PlainConsole
from sterling.report.live.live_progress import format_duration
from sterling.tuning.searchers.searchers import Combine, Job
from sterling.tuning.study_outcome import estimate_text, value_text

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN_TRIALS = 5  # number of trials in the table
PLAIN_LINES = 10  # plain lines printed over a search
TESTING_TEXT = "testing the best settings and the defaults on fresh seeds"


class StudyProgress:
    """A callback for waves and finished jobs; see ``tuning_study.StudyWatch``.

    ``trials`` is the number of configurations in all; ``combine`` combines the scores of several
    seeds.
    """

    def __init__(self, title: str, trials: int, combine: Combine, console: Console | None = None):
        self._title, self._trials, self._combine = title, trials, combine
        self._console = console or PlainConsole()
        self._best: dict[int, dict[str, Any]] = {}  # trial -> its newest line
        self._stage, self._wave, self._tenth = "search", 0, -1
        self._done: set[int] = set()
        self._seconds, self._spent, self._unit = 0.0, 0, "steps"
        self._live: Live | None = None
        self._begun = False

    def __call__(self, stage: str, wave: Sequence[Job], line: dict[str, Any] | None) -> None:
        """Handle the start of a wave (``line`` is None), or a finished job."""
        if not self._begun:  # not earlier, so that an error at the start is printed alone
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
        share = int(PLAIN_LINES * len(self._best) / self._trials)
        if self._live is None and stage == "search" and share > self._tenth:
            self._console.print("  ".join(self._facts()), soft_wrap=True)
            self._tenth = share

    def close(self) -> None:
        """Stop updating the table; calling it twice is safe."""
        if self._live is not None and self._live.is_started:
            with contextlib.suppress(OSError):  # the terminal was closed
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
            self._console.print(TESTING_TEXT, soft_wrap=True)

    def _facts(self) -> list[str]:
        facts = [
            f"{len(self._best)}/{self._trials} trials",
            f"{self._spent:,} {self._unit}",
            format_duration(self._seconds),
        ]
        if self._best and (first := self._ranked()[0]):
            facts.append(f"best {self._score(first):.4g} (trial {first['trial']})")
        return facts

    def _score(self, line: dict[str, Any]) -> float:
        """Return a line's score with the metric's own sign."""
        return float(line.get("better", 1) * self._combine(line["scores"]))

    def _ranked(self) -> list[dict[str, Any]]:
        """Return the trials trained longest first, and of those the best first."""
        trials = self._best.values()
        return sorted(trials, key=lambda x: (-x["stop"], -self._combine(x["scores"]), x["trial"]))

    def __rich__(self) -> RenderableType:
        """Return title, bar, and the best trials so far."""
        line = Table.grid(padding=(0, 2))
        testing = self._stage == "test"
        share = len(self._best) / self._trials
        bar = ProgressBar(total=1.0, completed=share, width=24, pulse=testing)
        line.add_row(bar, *self._facts())
        parts: list[RenderableType] = [Text(self._title, style="bold"), line]
        if testing:
            parts.append(Text(TESTING_TEXT, style="cyan"))
        if self._best:
            parts.append(self._table())
        return Group(*parts)

    def _table(self) -> Table:
        ranked = self._ranked()[:SHOWN_TRIALS]
        table = Table(box=None, padding=(0, 1), header_style="dim")
        for name in ("trial", self._unit, "score", *ranked[0]["fields"]):
            table.add_column(name, justify="right")
        for line in ranked:
            fields = [value_text(value) for value in line["fields"].values()]
            score = f"{self._score(line):.4g}"
            table.add_row(str(line["trial"]), f"{line['stop']:,}", score, *fields)
        return table


def print_summary(report: dict[str, Any], path: Any, console: Console | None = None) -> None:
    """Print the result of a study: ``made`` as in report.json, ``path`` its folder."""
    console = console or PlainConsole()
    best, budget, unit = report["incumbent"], report["budget"], report.get("unit", "steps")
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("")
    table.add_column("on its tuning seeds", justify="right")
    table.add_column(f"on {len(report['test_seeds'])} fresh seeds")
    tuning = f"{best['tuning']['score']:.4g}"
    table.add_row(
        f"incumbent (trial {best['trial']})", tuning, estimate_text(best["test"]), style="bold"
    )
    table.add_row("defaults", "", estimate_text(report["defaults"]["test"]))
    table.add_row("difference, seed by seed", "", estimate_text(report["difference"]))
    console.print(table)
    console.print(
        f"{budget['trials']} trials, {budget[unit]:,} {unit} in "
        f"{format_duration(budget['search_wall_seconds'])}; test {budget['test_' + unit]:,} {unit}",
        style="dim",
    )
    console.print(report["command"], soft_wrap=True)
    if path is not None:
        console.print(f"report: {path}/report.md", soft_wrap=True)
