"""The parts of a report's page: each draws its picture into ``out`` and says what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sterling.report import beside, facts, lines, overall, page, panels, profiles, style
from sterling.report.contest import Pair, Standing
from sterling.report.facts import Table
from sterling.report.forest import forest
from sterling.report.material import Material
from sterling.report.text import number, percent, steps
from sterling.statistics import Headline
from sterling.statistics import table as load_table
from sterling.statistics.comparison import chance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 5  # published scores shown of a run, the most alike first
COVERAGE = 0.8  # share of runs that a tolerance band is to hold
DECISIONS = {"equal": "not distinguished", "undecided": "not compared"}


def curves(made: Material, out: Path) -> str:
    """Learning curves."""
    if not any(one.curves.steps.size for one in made.results):
        return ""
    caption = (
        "Returns of episodes. Thick: median of the seeds; band: 10th to 90th percentile "
        "of the seeds; thin: single seeds; dashed up to a cross: a seed that failed. Each point "
        "is the mean over a fiftieth of the steps."
    )
    drawn = panels.learning(made.groups)
    return page.section("Learning curves", _picture(out, "curves", drawn, caption))


def scores(made: Material, out: Path) -> str:
    """Scores with their intervals, as a picture and as a table."""
    shown = lines.finals(made.contests, COVERAGE)
    if not shown:
        return page.section("Scores", page.paragraph("No run is finished."))
    caption = (
        f"Dot and thick line: mean over seeds and its {percent(made.asked.level)} interval. "
        "Below it, circles: seeds; thin line: the tolerance band, where single seeds lie."
    )
    drawn = forest(shown, made.asked.measure, made.labels)
    return page.section(
        "Scores", _picture(out, "scores", drawn, caption), page.table(_standings(made))
    )


def better(made: Material, out: Path) -> str:
    """Who is better: probabilities, differences, decisions."""
    shown = lines.chances(made.contests, made.over)
    caption = (
        "Probability that a run of the first is better than a run of the second (ties count "
        "half). On one environment the interval excludes one half exactly where the pair is "
        "decided; it allows for all its pairs."
    )
    picture = ""
    if shown:
        drawn = forest(shown, "P(first is better)", [], line=0.5, limits=(-0.02, 1.02))
        picture = _picture(out, "better", drawn, caption)
    return page.section("Who is better", picture, page.table(_pairs(made)))


def together(made: Material, out: Path) -> str:
    """All environments together, where a table of reference scores knows them."""
    if made.asked.table:
        load_table(made.asked.table)  # a name that is none is told, used or not
    if len(made.contests) < 2:
        return ""
    found = profiles.normalised(made.groups, made.asked.table, made.asked.metric, made.asked.failed)
    title, asked = "All environments together", made.asked
    if isinstance(found, str):
        return page.section(title, page.paragraph(f"Not given. {found}"))
    shown = profiles.aggregates(found, level=asked.level)
    name = f"normalised score ({found.table.identity})"
    told = (
        f"Over {', '.join(found.environments)}; normalised by {found.table.identity}: "
        f"{found.table.meaning}. Source: {found.table.source}."
    )
    if found.unknown:
        told += f" Not in the table, and left out: {', '.join(found.unknown)}."
    if found.left_out:
        told += f" Left out for having fewer than two environments: {', '.join(found.left_out)}."
    if found.unsaid:
        told += f" Left out for failed seeds (--failed): {', '.join(found.unsaid)}."
    resampled = "Aggregates over runs and environments; intervals from resampling whole runs."
    above = "Performance profiles: the share of runs above each normalised score."
    drawn = profiles.draw(found, made.labels, level=asked.level)
    return page.section(
        title,
        page.paragraph(told),
        _picture(out, "aggregates", forest(shown, name, made.labels), resampled),
        _picture(out, "profiles", drawn, above),
    )


def efficiency(made: Material, out: Path) -> str:
    """Mean return over training."""
    found = overall.areas(made.groups, level=made.asked.level)
    units: dict[str, set[str]] = {}
    for one in made.groups:
        units.setdefault(one.environment, set()).update(one.counted)
    words = {world: " or ".join(sorted(met)) for world, met in units.items()}
    shown = lines.areas(found, made.labels, words)
    if not shown:
        return ""
    caption = (
        "Mean return over training (area under the curve by its length): high where an algorithm "
        "learns early. All are measured over the steps that the shortest log covers."
    )
    drawn = forest(shown, "mean return over training", made.labels)
    return page.section("Sample efficiency", _picture(out, "efficiency", drawn, caption))


def published(made: Material) -> str:
    """Our scores beside the published ones."""
    if made.asked.metric != "return":
        return ""
    rows = [
        [
            result.algorithm,
            result.environment,
            steps(result.steps),
            str(ours),
            number(one.reference.value),
            f"[{number(one.reference.low)}, {number(one.reference.high)}]",
            one.verdict,
            " ".join(filter(None, [one.reference.source.name, one.reference.variant])),
            ", ".join(one.differs) or "-",
        ]
        for result, ours in beside.finals(made.results)
        for one in beside.check(result, ours)[:MOST]
    ]
    header = ["", "environment", "steps", "ours", "published", "tolerated", "ours is"]
    table = Table([*header, "source", "measured otherwise"], rows, sides="kkrrrrkk")
    more = f"For each run the {MOST} most alike; all of them: sterling check-scores."
    told = page.paragraph(more, "faint") if rows else ""
    return page.section("Beside published scores", told, page.table(table))


def runs(made: Material) -> str:
    """How each run was made, and in which settings they differ."""
    return page.section(
        "How the runs were made",
        page.table(facts.runs(made.groups)),
        *[page.table(table) for table in facts.settings(made.groups)],
    )


def _standings(made: Material) -> Table:
    rows = [_standing(made, at, one.environment) for one in made.contests for at in one.standings]
    header = ["environment", "", f"mean {made.asked.measure}", "interval", "seeds", "failed"]
    band = f"{COVERAGE:.0%} of seeds (how sure)"
    return Table([*header, "steps", band], rows, sides="kkr rrrr")


def _standing(made: Material, at: Standing, world: str) -> list[str]:
    from sterling.statistics import tolerance

    known = at.scores[np.isfinite(at.scores)]
    band = "-"
    if known.size > 1:
        spread = tolerance(known, COVERAGE)
        band = f"[{number(spread.low)}, {number(spread.high)}] ({spread.confidence:.0%})"
    return [
        world,
        at.label,
        _words(at.made),
        at.made.shown.method if at.made.shown is not None else "no finished run",
        str(at.seeds),
        str(at.failed) if at.failed else "-",
        made.group(at.label, world).budgets or "?",
        band,
    ]


def _words(made: Headline) -> str:
    """A standing, with each seed's score where there are few."""
    return f"{made} (seeds {made.seeds})" if made.seeds else str(made)


def _pairs(made: Material) -> Table:
    rows = []
    for one in made.contests:
        for pair in one.pairs:
            said = _said(pair)
            cells = [one.environment, f"{pair.first} - {pair.second}"]
            cells += [str(pair.difference) if pair.difference else "-"]
            cells += [chance(pair.better) if pair.better else "-"]
            rows.append([*cells, (said | DECISIONS)[pair.verdict]])
    header = ["environment", "pair", "difference of means", "P(first better)", "decision"]
    return Table(header, rows, sides="kkrrk")


def _said(pair: Pair) -> dict[str, str]:
    """A decided pair's verdict in words."""
    does = "has the higher mean" if pair.about == "mean" else "tends to score higher"
    return {"larger": f"{pair.first} {does}", "smaller": f"{pair.second} {does}"}


def _picture(out: Path, name: str, figure: Figure, caption: str) -> str:
    """Save a figure in every format; its place in the page."""
    with style.applied():
        paths = style.save(figure, out / name)
    return page.picture(next(path for path in paths if path.suffix == ".svg"), caption)
