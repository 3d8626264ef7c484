"""Show a run's progress: a live panel in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from sterling.report.live.console import PlainConsole
from sterling.report.live.metric_sinks import Row
from sterling.statistics import Headline, estimate
from sterling.statistics.scores.headline import HEADLINE_METRICS, HELD_OUT_LOSS, cautions_of
from sterling.statistics.scores.run_folder_scores import row_progress
from sterling.statistics.scores.score_bounds import Bounds
from sterling.system.terminal_messages import when_checked

if TYPE_CHECKING:
    from rich.console import RenderableType

PLAIN_LINES = 10  # plain lines over a whole run
SILENT_SECONDS = 3.0  # seconds before the first one, so that errors at the start appear without it
WAITING_TEXT = "compiling (cached for the next run), then training up to the first row of metrics"
# columns of language runs: the mean share from which on a line says so, and what it is called
TOLD_SHARES = {
    "data/flat": (0.9, "questions whose answers all got the same reward"),
    "data/cut": (0.5, "answers cut off at their length limit"),
}


class Progress:
    """A sink that shows steps (or updates), speed, return with its interval, and time left.

    ``budget`` counts steps and updates per seed together; ``seeds`` is their number, or which ones.
    In a terminal the panel stays in place; elsewhere at most one plain line is printed per tenth of
    the run.
    """

    def __init__(
        self, budget: int, seeds: int | Sequence[int], title: str, console: Console | None = None
    ):
        self.title, self._budget = title, budget
        self._seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
        self._shown = "return"  # or the loss on texts that are held out
        self._returns: dict[int, float] = {}  # seed -> its latest return
        self._returned_at: dict[int, int] = {}  # seed -> the step or update of that return
        self._evaluation = ""  # the returns of the latest evaluation in the environment, as a text
        self.return_within: Bounds | None = None  # bounds of returns; set by the run
        self._row: Row = {}
        self._started = self._written = time.monotonic()
        self._tenth = -1
        self._spinner = Spinner("dots", style="cyan")
        self._console = console or PlainConsole()
        self._live: Live | None = None
        self._closed = False
        self._title: threading.Timer | None = None  # prints the title later, without a live panel
        if self._console.is_terminal:
            self._live = Live(self, console=self._console, refresh_per_second=5)
            self._live.start()
        else:
            self._title = threading.Timer(SILENT_SECONDS, self._announce)
            self._title.daemon = True
            when_checked(self._start_waiting)

    def write(self, row: Row) -> None:
        """Show a row of metrics."""
        self._row, self._written = row, time.monotonic()
        self._budget = row.get("updates") or row.get("steps") or self._budget
        counts_updates = "update" in row  # then only evaluations are comparable between rows
        column = "evaluation/return" if counts_updates else "data/return"
        if HELD_OUT_LOSS in row:  # of a run without episodes
            column = self._shown = HELD_OUT_LOSS
        returns = row.get(column, [])
        for seed, value in zip(self._seeds, returns, strict=False):
            if value is not None:
                self._returns[seed], self._returned_at[seed] = float(value), row_progress(row)
        for seed in row.get("failed", []):
            self._returns.pop(seed, None)
            self._returned_at.pop(seed, None)
        if not counts_updates:
            self._note_evaluation(row)
        tenth = int(PLAIN_LINES * self._share)
        if self._live is None and tenth > self._tenth:
            self._announce()
            self._console.print("  ".join([f"{self._share:4.0%}", *self._facts()]), soft_wrap=True)
            self._tenth = tenth

    def _note_evaluation(self, row: Row) -> None:
        """Keep what is shown of a row's evaluation, apart from the returns of training."""
        every = zip(self._seeds, row.get("evaluation/return", []), strict=False)
        failed = row.get("failed", [])
        found = [float(value) for seed, value in every if value is not None and seed not in failed]
        if found:
            made = estimate(found, within=self.return_within)
            self._evaluation = f"evaluated {made} at {row_progress(row):,}"

    def show_observations(self, lines: Sequence[str]) -> None:
        """Print lines on how the agents' networks read observations, above all rows."""
        self._announce()
        for line in lines:
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)

    def close(self) -> None:
        """Stop the panel, keeping it on screen only if a row came; calling it twice is safe."""
        self._closed = True
        if self._title is not None:
            self._title.cancel()
        if self._live is not None and self._live.is_started:
            self._live.transient = not self._row
            with contextlib.suppress(OSError):  # the terminal was closed
                self._live.stop()

    def _start_waiting(self) -> None:
        """Begin to count the seconds until the first plain line."""
        if self._title is not None and not self._closed:
            self._title.start()

    def _announce(self) -> None:
        """Print the first plain line, once."""
        title, self._title = self._title, None
        if title is not None:
            title.cancel()
            self._console.print(f"{self.title}: {WAITING_TEXT}", soft_wrap=True)

    @property
    def _share(self) -> float:
        return min(row_progress(self._row) / max(self._budget, 1), 1.0) if self._row else 0.0

    def _facts(self) -> list[str]:
        """Return steps, speed, return, time left and failed seeds as texts."""
        row = self._row
        unit = "updates" if "update" in row else "steps"
        kind = "updates" if "time/updates_per_second" in row else "steps"
        speed = row.get(f"time/{kind}_per_second", 0.0)
        facts = [f"{row_progress(row):,}/{self._budget:,} {unit}", f"{format_rate(speed)} {kind}/s"]
        if self._returns:
            which = f"{self._shown} of the other seeds" if row.get("failed") else self._shown
            made = estimate(list(self._returns.values()), within=self.return_within)
            facts.append(f"{which} {made}{self._age_of_returns(unit)}")
        elif row.get("data/episodes") and not any(row["data/episodes"]):
            facts.append("no return yet: no episode has ended")
        if self._evaluation:
            facts.append(self._evaluation)
        if self._share < 1.0 and speed:
            facts.append(f"{format_duration(self._left())} left")
        for column, (least, said) in TOLD_SHARES.items():
            shares = [x for x in row.get(column, ()) if x is not None]
            if shares and (mean := sum(shares) / len(shares)) >= least:
                facts.append(f"{said}: {mean:.0%}")
        if row.get("without_verdict"):
            facts.append(f"answers without a verdict: {row['without_verdict']}")
        if row.get("failed"):
            facts.append(f"failed: {_seed_list(row['failed'])}")
        return facts

    def _age_of_returns(self, unit: str) -> str:
        """Return where the shown returns are from, if they are not of this row: no policy was
        evaluated since, or no episode has ended."""
        first, last = min(self._returned_at.values()), max(self._returned_at.values())
        if first == row_progress(self._row):
            return ""
        span = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        return f" (of {unit[:-1]} {span})"

    def _left(self) -> float:
        """Return the seconds left at the last row's speed; counts down between rows."""
        row = self._row
        speed, ahead = row.get("time/updates_per_second"), self._budget - row_progress(row)
        if not speed:  # steps are counted, also after offline updates
            speed = row["time/steps_per_second"]
            ahead = row.get("steps", self._budget) - row["step"]
        return max(ahead * len(self._seeds) / speed - (time.monotonic() - self._written), 0.0)

    def __rich__(self) -> RenderableType:
        """Return the panel."""
        panel = Table.grid(padding=(0, 2))
        panel.add_row(Text(self.title, style="bold"))
        if not self._row:
            waited = format_duration(time.monotonic() - self._started)
            self._spinner.update(text=Text(f"{WAITING_TEXT}  {waited}", style="dim"))
            panel.add_row(self._spinner)
            return panel
        line = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=1.0, completed=self._share, width=24)
        steps, speed, *rest = self._facts()
        line.add_row(bar, f"{self._share:4.0%}", steps, speed)
        panel.add_row(line)
        panel.add_row("  ".join(rest))
        return panel


def print_summary(
    result: dict[str, Any], path: str | Path | None, console: Console | None = None
) -> None:
    """Print the result of a run: ``result`` as in ``result.json``, ``path`` its folder."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in summary_lines(result, path):
        table.add_row(name, value)
    console = console or PlainConsole()
    console.print(table)


def summary_lines(result: dict[str, Any], path: str | Path | None) -> list[tuple[str, str]]:
    """Return the names and values of a run's summary."""
    seeds, failed = result["seeds"], result.get("failed_seeds", [])
    taught_by = "texts" if "model" in result else "a dataset"
    lines = [
        ("algorithm", result["algorithm"]),
        ("environment", result["environment"] or f"none: trained from {taught_by} alone"),
        *[
            (name, f"{result[name]:,} per seed")
            for name in ("updates", "steps")
            if result.get(name)
        ],
        ("seeds", f"{len(seeds)}" + (f", of which failed: {_seed_list(failed)}" if failed else "")),
    ]
    if lost := result.get("without_verdict"):
        lines.append(("answers without a verdict", lost))
    final = result.get("final", {})
    found = [(f"final {x}", Headline.from_json(final[x])) for x in HEADLINE_METRICS if x in final]
    if stopped := result.get("stopped"):
        lines.append(("stopped early", f"by {stopped['by']}: {stopped['reason']}"))
    best = result.get("best", {}).get("final", {})
    found += [("best policy", Headline.from_json(best[x])) for x in HEADLINE_METRICS if x in best]
    forgotten = result.get("forgotten", {}).items()
    found += [(f"forgotten of {world}", Headline.from_json(each)) for world, each in forgotten]
    lines += [(name, each.full_text()) for name, each in found]
    lines += _phase_lines(result)
    if "switch" in result:
        parts = {"before the first step": "before", "dip after it": "dip"}
        lines += [(k, str(Headline.from_json(result["switch"][v]))) for k, v in parts.items()]
    if "taught" in result:
        parts = {"teacher's return": "teacher", "student - teacher": "difference"}
        lines += [(k, str(Headline.from_json(result["taught"][v]))) for k, v in parts.items()]
    lines += [("note", each) for each in cautions_of(each for _, each in found)]
    seconds = f"{format_duration(result['wall_seconds'])} ({result['wall_seconds']:,.1f} s)"
    lines += [("time", seconds)]
    for kind in ("updates", "steps"):
        if result.get(f"{kind}_per_second"):
            lines.append(("speed", f"{format_rate(result[f'{kind}_per_second'])} {kind}/s"))
    return lines + ([("folder", str(path))] if path is not None else [])


def _phase_lines(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the line about where a run of several phases trained."""
    phases = []
    for phase in result.get("phases", []):
        count = f"{phase['steps']:,} steps" if phase["steps"] else f"{phase['updates']:,} updates"
        phases.append(f"{count} in {phase['environment']}")
    return [("phases", ", then ".join(phases))] if phases else []


def format_rate(each_second: float) -> str:
    """Format a rate per second; slow ones with two digits."""
    return f"{each_second:,.0f}" if each_second >= 10 else f"{each_second:.2g}"


def format_duration(seconds: float) -> str:
    """Format seconds as m:ss, or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _seed_list(seeds: Sequence[int]) -> str:
    return ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(str(seed) for seed in seeds)
