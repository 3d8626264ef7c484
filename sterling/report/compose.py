"""The report: a page with everything, and its pictures."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import sterling
from sterling.report import facts, page, sections, words
from sterling.report.material import Material, Request, collect
from sterling.report.text import count
from sterling.types import Mistake


def write(runs: Sequence[str | Path], out: str | Path, asked: Request | None = None) -> Path:
    """Write the report on ``runs`` into the folder ``out``; the path of its page.

    Raises Mistake where no run is found, or ``out`` cannot be written to.
    """
    out, asked = Path(out), asked or Request()
    made = collect(runs, asked)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"{out} cannot be written to ({error.strerror}); choose --out") from error
    parts = [
        _head(made),
        _summary(made),
        page.cautions(facts.cautions(made.groups, made.notes, asked.failed)),
        sections.curves(made, out),
        sections.scores(made, out),
        sections.better(made, out),
        sections.together(made, out),
        sections.efficiency(made, out),
        sections.published(made),
        sections.runs(made),
    ]
    path = out / "index.html"
    path.write_text(page.page(asked.title, parts), encoding="utf-8")
    return path


def _head(made: Material) -> str:
    algorithms = count(len({one.algorithm for one in made.results}), "algorithm")
    worlds = count(len(made.contests), "environment")
    seeds = count(sum(len(one.seeds) for one in made.results), "seed")
    day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts_line = f"{algorithms} on {worlds}, {seeds} in all; sterling {sterling.__version__}, {day}"
    return f"<h1>{page.escape(made.asked.title)}</h1>\n{page.paragraph(facts_line, 'faint')}"


def _summary(made: Material) -> str:
    told = [words.together(one) for one in made.over] + words.sentences(made.contests)
    if not told:
        return ""
    method = page.paragraph(words.method(made.contests, made.asked.alpha), "faint")
    return page.section("What can be said", page.bullets(told, "verdicts"), method)
