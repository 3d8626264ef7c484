"""Write the report: an HTML page with all sections, and its pictures."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.report import html_page, report_sections, run_caveats, verdict_words
from sterling.report.report_inputs import ReportData, ReportRequest, collect_report_data
from sterling.report.text_tables import pluralise
from sterling.statistics.scores.score_bounds import Bounds
from sterling.statistics.scores.score_table import FailedRule
from sterling.system.shown_values import shown_value
from sterling.types import Mistake
from sterling.version import __version__


@dataclasses.dataclass(frozen=True)
class WrittenReport:
    """A report that was written: its page, and what it finds."""

    path: Path  # of index.html
    findings: list[str]  # sentences
    cautions: list[str]  # what weakens them

    def __repr__(self) -> str:
        return "\n  ".join([f"Report: {self.path}", *self.findings])

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"path": str(self.path), "findings": self.findings, "cautions": self.cautions}


def report_on(
    *runs: Any,
    out: str | Path = "report",
    title: str = "Report",
    normalise: str | None = None,
    tasks: Sequence[str] | None = None,
    metric: str = "return",
    failed: FailedRule = None,
    about: str = "tendency",
    within: Bounds | None = None,
    alpha: float = 0.05,
) -> WrittenReport:
    """Write a page of learning curves, scores with intervals and comparisons, as
    ``sterling report`` does.

    Args:
        runs: run folders, folders of them, files of scores (CSV or JSON), each also as
            ``"LABEL=PATH"``, and runs that were trained or loaded.
        out: folder to write.
        title: title of the page.
        normalise: table of reference scores to normalise by; None: one that has all environments.
        tasks: use only runs on these environments.
        metric: the score: return, or a column of metrics.
        failed: what a failed seed counts as: a score, "worst" or "exclude".
        about: what to decide: "tendency" or "mean".
        within: (low, high), bounds of all scores, for ``about="mean"``.
        alpha: largest probability of any wrong decision per environment.

    Returns:
        The path of the page and its findings in words.

    Raises:
        Mistake: where no run is found, ``out`` cannot be written to, or an option has no effect.
    """
    if within is not None and about != "mean":
        raise Mistake("--within has an effect only with --about mean. Add that, or leave it out.")
    chosen = None if tasks is None else list(tasks)
    request = ReportRequest(metric, alpha, failed, normalise, title, chosen, about, within)
    return _write(_run_paths(runs), Path(out), request)


def _run_paths(runs: Sequence[Any]) -> list[str | Path]:
    """Return the folders of runs that were trained or loaded, and other words as they are."""
    for run in runs:
        if not isinstance(run, (str, Path)) and getattr(run, "path", None) is None:
            raise Mistake(f"{shown_value(run)} has no folder. Train it with out=FOLDER.")
    return [run if isinstance(run, (str, Path)) else run.path for run in runs]


def write_report(
    runs: Sequence[str | Path], out: str | Path, request: ReportRequest | None = None
) -> Path:
    """Write the report on ``runs`` into the folder ``out``; return the path of its page.

    Raises Mistake where no run is found, or ``out`` cannot be written to.
    """
    return _write(runs, Path(out), request or ReportRequest()).path


def _write(runs: Sequence[str | Path], out: Path, request: ReportRequest) -> WrittenReport:
    """Write the page and its pictures."""
    data = collect_report_data(runs, request)
    cautions = run_caveats.collect_cautions(data.groups, data.notes, request.failed)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"{out} cannot be written to ({error.strerror}); choose --out") from error
    parts = [
        _title_part(data),
        _summary_section(data),
        html_page.caution_box(cautions),
        report_sections.curves_section(data, out),
        report_sections.scores_section(data, out),
        report_sections.better_section(data, out),
        report_sections.aggregates_section(data, out),
        report_sections.efficiency_section(data, out),
        report_sections.published_section(data),
        report_sections.runs_section(data),
    ]
    path = out / "index.html"
    path.write_text(html_page.html_page(request.title, parts), encoding="utf-8")
    return WrittenReport(path, _findings(data), cautions)


def _findings(data: ReportData) -> list[str]:
    overall = verdict_words.overall_conclusions(data.overall)
    return overall + verdict_words.environment_conclusions(data.comparisons)


def _title_part(data: ReportData) -> str:
    algorithms = pluralise(len({one.algorithm for one in data.results}), "algorithm")
    worlds = pluralise(len(data.comparisons), "environment")
    seeds = pluralise(sum(len(one.seeds) for one in data.results), "seed")
    day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts_line = f"{algorithms} on {worlds}, {seeds} in all; sterling {__version__}, {day}"
    title = html_page.escape(data.request.title)
    return f"<h1>{title}</h1>\n{html_page.paragraph(facts_line, 'faint')}"


def _summary_section(data: ReportData) -> str:
    sentences = _findings(data)
    if not sentences:
        return ""
    method = html_page.paragraph(
        verdict_words.method_paragraph(data.comparisons, data.request.alpha), "faint"
    )
    return html_page.section("Findings", html_page.bullet_list(sentences, "verdicts"), method)
