"""The text of a comparison of runs: standings, pairs and decisions in words."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.report.overall_scores import OverallComparison, compare_overall
from sterling.report.pairwise_contest import (
    MEANS_METHOD,
    EnvironmentComparison,
    PairComparison,
    compare_on_environments,
)
from sterling.report.run_caveats import collect_cautions
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import RunGroup, group_results
from sterling.report.text_tables import text_table
from sterling.report.verdict_words import (
    environment_conclusions,
    method_paragraph,
    overall_conclusions,
)
from sterling.statistics.comparisons.comparison_result import format_probability
from sterling.statistics.scores.score_table import FailedRule

TEXT_WIDTH = 100


def compare_folders(folders: Sequence[Path]) -> str:
    """Return what ``sterling compare`` prints about run folders, with its default options. Raise
    :class:`Mistake` where they cannot be compared."""
    results, notes = read_results(folders)
    groups, more = group_results(results)
    made = compare_on_environments(groups)
    over = compare_overall(groups)
    return comparison_text(groups, [*notes, *more], made, over)


def comparison_text(
    groups: list[RunGroup],
    notes: list[str],
    made: list[EnvironmentComparison],
    over: list[OverallComparison],
    **how: Any,
) -> str:
    """Return the text of a comparison ``made`` of ``groups``. ``how``: ``alpha`` (0.05) and
    ``failed`` (None), as they were given to it."""
    alpha, failed = float(how.get("alpha", 0.05)), how.get("failed")
    parts = [f"{contest_text(contest)}\n" for contest in made]
    parts += [wrap_text(words) for words in overall_conclusions(over)]
    if any(one.pairs for one in made):
        parts.append(wrap_text(method_paragraph(made, alpha)))
    parts += [wrap_text(f"note: {note}") for note in comparison_notes(groups, notes, made, failed)]
    return "\n".join(parts)


def comparison_notes(
    groups: list[RunGroup],
    notes: list[str],
    made: list[EnvironmentComparison],
    failed: FailedRule,
) -> list[str]:
    """Return what weakens a comparison ``made`` of ``groups``, in sentences."""
    # environments whose intervals the method's text describes already
    described = [one.environment for one in made if one.how not in ("none", MEANS_METHOD)]
    cautions = collect_cautions(groups, notes, failed, described)
    if not any(one.pairs for one in made):
        cautions.append("nothing to compare: no environment has runs with two different labels")
    return cautions


def contest_text(one: EnvironmentComparison) -> str:
    """Return the text of one environment: standings, pairs, and the decisions in words."""
    standings = [
        [
            "  " + at.label,
            str(at.made),
            str(at.seeds),
            str(at.failed) if at.failed else "-",
        ]
        for at in one.standings
    ]
    parts = [one.environment, text_table(["  ", "mean", "seeds", "failed"], standings, "lrrr")]
    parts += [f"  {at.label} by seed: {at.made.seeds}" for at in one.standings if at.made.seeds]
    if one.pairs:
        header = ["  pair", "difference", "P(first better)", ""]
        parts += ["", text_table(header, [_pair_row(pair) for pair in one.pairs], "lrrl"), ""]
        parts += [wrap_text(words) for words in environment_conclusions([one])]
    return "\n".join(parts)


def _pair_row(pair: PairComparison) -> list[str]:
    does = f"has the {pair.direction} mean"
    if pair.about != "mean":
        does = f"tends to score {pair.direction}"
    verdicts = {"larger": f"first {does}", "smaller": f"second {does}"}
    verdicts |= {"equal": "not distinguished", "undecided": "not compared"}
    return [
        f"  {pair.first} - {pair.second}",
        str(pair.difference) if pair.difference else "-",
        format_probability(pair.better) if pair.better else "-",
        verdicts[pair.verdict],
    ]


def wrap_text(words: str) -> str:
    """Return a paragraph in lines of ``TEXT_WIDTH`` characters."""
    return textwrap.fill(words, TEXT_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
