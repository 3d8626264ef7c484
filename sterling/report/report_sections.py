"""Build the sections of a report's page: each draws its picture into ``out`` and explains it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sterling.report import (
    html_page,
    normalised_groups,
    overall_scores,
    published_verdicts,
    run_caveats,
)
from sterling.report.pairwise_contest import LabelScore, PairComparison
from sterling.report.pictures import curve_panels, interval_lines, plot_style, profile_plot
from sterling.report.pictures.interval_forest import draw_intervals
from sterling.report.report_inputs import ReportData
from sterling.report.run_caveats import TextTable
from sterling.report.text_tables import format_number, format_percent, format_steps
from sterling.statistics import Headline
from sterling.statistics.comparisons.comparison_result import format_probability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PUBLISHED = 5  # published scores shown per run, the most alike first
COVERAGE = 0.8  # share of runs that a tolerance band should contain
VERDICT_TEXTS = {"equal": "not distinguished", "undecided": "not compared"}


def curves_section(data: ReportData, out: Path) -> str:
    """Build the section of learning curves."""
    if not any(one.curves.steps.size for one in data.results):
        return ""
    level = data.request.level
    caption = (
        f"Returns of episodes. Thick: mean of the seeds; band: its {format_percent(level)} "
        "interval (cut where it is far wider than the curves); thin: single seeds; dashed up to a "
        "cross: a seed that failed. Each point is the mean over a fiftieth of the steps. Diamond "
        "at the last step: the final evaluation with its interval."
    )
    finals = {
        (at.label, one.environment): at.made for one in data.comparisons for at in one.standings
    }
    shown = finals if data.request.metric == "return" else {}
    drawn = curve_panels.draw_learning_curves(data.groups, finals=shown, level=level)
    return html_page.section("Learning curves", _save_picture(out, "curves", drawn, caption))


def scores_section(data: ReportData, out: Path) -> str:
    """Build the section of scores with their intervals, as a picture and as a table."""
    shown = interval_lines.score_rows(data.comparisons, COVERAGE)
    if not shown:
        return html_page.section("Scores", html_page.paragraph("No run is finished."))
    caption = (
        f"Dot and thick line: mean over seeds and its {format_percent(data.request.level)} "
        f"interval. Below it, circles: seeds; thin line: where {COVERAGE:.0%} of single seeds lie."
    )
    drawn = draw_intervals(shown, data.request.measure, data.labels)
    return html_page.section(
        "Scores",
        _save_picture(out, "scores", drawn, caption),
        html_page.html_table(_scores_table(data)),
    )


def better_section(data: ReportData, out: Path) -> str:
    """Build the section that compares pairs: probabilities, differences, decisions."""
    shown = interval_lines.probability_rows(data.comparisons, data.overall)
    caption = (
        "Probability that a run of the first is better than a run of the second (ties count "
        "half). On one environment the interval excludes one half exactly where the pair is "
        "decided; it allows for all its pairs."
    )
    picture = ""
    if shown:
        drawn = draw_intervals(shown, "P(first is better)", [], line=0.5, limits=(-0.02, 1.02))
        picture = _save_picture(out, "better", drawn, caption)
    return html_page.section("Who is better", picture, html_page.html_table(_pairs_table(data)))


def aggregates_section(data: ReportData, out: Path) -> str:
    """Build the section over all environments, if a table of reference scores knows them."""
    if len(data.comparisons) < 2:
        return ""
    found = normalised_groups.normalise_groups(
        data.groups, data.request.table, data.request.metric, data.request.failed
    )
    title, request = "All environments together", data.request
    if isinstance(found, str):
        return html_page.section(title, html_page.paragraph(f"Not available. {found}"))
    shown = profile_plot.aggregate_rows(found, level=request.level)
    name = f"normalised score ({found.table.identity})"
    text = (
        f"Over {', '.join(found.environments)}; normalised by {found.table.identity}: "
        f"{found.table.meaning}. Source: {found.table.source}."
    )
    text = f"{text} {normalised_groups.left_out_text(found)}".rstrip()
    resampled = "Aggregates over runs and environments; intervals from resampling whole runs."
    above = "Performance profiles: the share of runs above each normalised score."
    drawn = profile_plot.draw_profiles(found, data.labels, level=request.level)
    return html_page.section(
        title,
        html_page.paragraph(text),
        _save_picture(out, "aggregates", draw_intervals(shown, name, data.labels), resampled),
        _save_picture(out, "profiles", drawn, above),
    )


def efficiency_section(data: ReportData, out: Path) -> str:
    """Build the section of mean returns over training."""
    found = overall_scores.mean_training_returns(data.groups, level=data.request.level)
    units: dict[str, set[str]] = {}
    for one in data.groups:
        units.setdefault(one.environment, set()).update(one.axis_units)
    words = {world: " or ".join(sorted(met)) for world, met in units.items()}
    shown = interval_lines.area_rows(found, data.labels, words)
    if not shown:
        return ""
    caption = (
        "Mean return over training (area under the curve divided by its length): high where an "
        "algorithm learns early. All are measured over the steps that the shortest log covers."
    )
    drawn = draw_intervals(shown, "mean return over training", data.labels)
    return html_page.section("Sample efficiency", _save_picture(out, "efficiency", drawn, caption))


def published_section(data: ReportData) -> str:
    """Build the section that compares our scores with published ones."""
    if data.request.metric != "return":
        return ""
    rows = [
        [
            result.algorithm,
            result.environment,
            format_steps(result.steps),
            str(ours),
            format_number(one.reference.value),
            f"[{format_number(one.reference.low)}, {format_number(one.reference.high)}]",
            one.verdict,
            " ".join(filter(None, [one.reference.source.name, one.reference.variant])),
            ", ".join(one.differs) or "-",
        ]
        for result, ours in published_verdicts.finished_headlines(data.results)
        for one in published_verdicts.check_published(result, ours)[:MAX_PUBLISHED]
    ]
    header = ["", "environment", "steps", "ours", "published", "tolerated", "ours is"]
    table = TextTable([*header, "source", "measured differently"], rows, sides="kkrrrrk  ")
    more = f"For each run the {MAX_PUBLISHED} most alike; all of them: sterling check-scores."
    hint = html_page.paragraph(more, "faint") if rows else ""
    return html_page.section("Compared with published scores", hint, html_page.html_table(table))


def runs_section(data: ReportData) -> str:
    """Build the section on how each run was made, and in which settings they differ."""
    return html_page.section(
        "How the runs were made",
        html_page.html_table(run_caveats.runs_table(data.groups)),
        *[html_page.html_table(table) for table in run_caveats.settings_tables(data.groups)],
    )


def _scores_table(data: ReportData) -> TextTable:
    rows = [
        _scores_row(data, at, one.environment) for one in data.comparisons for at in one.standings
    ]
    header = ["environment", "", f"mean {data.request.measure}", "interval", "seeds", "failed"]
    band = f"{COVERAGE:.0%} of seeds (confidence)"
    return TextTable([*header, "steps", band], rows, sides="kk  rrr ")


def _scores_row(data: ReportData, at: LabelScore, world: str) -> list[str]:
    from sterling.statistics import tolerance

    known = at.scores[np.isfinite(at.scores)]
    band = "-"
    if known.size > 1:
        spread = tolerance(known, COVERAGE)
        band = (
            f"[{format_number(spread.low)}, {format_number(spread.high)}] ({spread.confidence:.0%})"
        )
    return [
        world,
        at.label,
        _headline_text(at.made),
        at.made.shown.method if at.made.shown is not None else "no finished run",
        str(at.seeds),
        str(at.failed) if at.failed else "-",
        data.group(at.label, world).budgets or "?",
        band,
    ]


def _headline_text(headline: Headline) -> str:
    """Return a headline as text, with each seed's score where there are few."""
    return f"{headline} (seeds {headline.seeds})" if headline.seeds else str(headline)


def _pairs_table(data: ReportData) -> TextTable:
    rows = []
    for one in data.comparisons:
        for pair in one.pairs:
            texts = _decision_texts(pair) | VERDICT_TEXTS
            cells = [one.environment, f"{pair.first} - {pair.second}"]
            cells += [str(pair.difference) if pair.difference else "-"]
            cells += [format_probability(pair.better) if pair.better else "-"]
            rows.append([*cells, texts[pair.verdict]])
    header = ["environment", "pair", "difference of means", "P(first better)", "decision"]
    return TextTable(header, rows, sides="kkrrk")


def _decision_texts(pair: PairComparison) -> dict[str, str]:
    """Return the texts of the two decided verdicts."""
    does = "has the higher mean" if pair.about == "mean" else "tends to score higher"
    return {"larger": f"{pair.first} {does}", "smaller": f"{pair.second} {does}"}


def _save_picture(out: Path, name: str, figure: Figure, caption: str) -> str:
    """Save a figure in every format and return its HTML."""
    with plot_style.use_style():
        paths = plot_style.save_figure(figure, out / name)
    return html_page.html_picture(next(path for path in paths if path.suffix == ".svg"), caption)
