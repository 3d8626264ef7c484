"""Normalise scores over several environments by a fixed table of references.

Scaling by the best and worst of the runs at hand would let every newcomer change everybody's
numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sterling.report.overall_scores import has_failed, scores_table, shared_environments
from sterling.report.runs.run_groups import RunGroup, unique_labels
from sterling.report.text_tables import join_words
from sterling.statistics import Estimate, Scores, Table, estimate, normalise, tables
from sterling.statistics import table as load_table
from sterling.statistics.scores.score_table import FailedRule
from sterling.types import Mistake

AGGREGATES = {
    "iqm": "interquartile mean",
    "median": "median",
    "mean": "mean",
    "gap": "optimality gap (lower is better)",
}
# metrics that tables have references for
RETURN_METRICS = (
    "return",
    "data/return",
    "evaluation/return",
)
LAST_TABLES = ("d4rl",)  # tables of datasets whose names are also environments'


@dataclasses.dataclass(frozen=True)
class NormalisedScores:
    """Normalised scores on the environments that all labels share and the table knows."""

    table: Table
    environments: list[str]
    scores: dict[str, Scores]  # by label
    left_out: list[str]  # labels with scores on fewer than two environments
    unknown: list[str]  # environments that the table does not know
    without_rule: list[str]  # labels with failed seeds and no rule for what they count as


def normalise_groups(
    groups: Sequence[RunGroup],
    name: str | None = None,
    metric: str = "return",
    failed: FailedRule = None,
) -> NormalisedScores | str:
    """Normalise scores by the table called ``name``; return a sentence where that is impossible.

    By default the table is the one that knows most of the shared environments. ``metric``: what was
    scored. ``failed``: the score that a failed seed counts as; without it, labels with failed seeds
    are left out.

    Raises Mistake for an unknown table, and for a table where returns were not scored.
    """
    if metric not in RETURN_METRICS and name:
        raise Mistake(
            f"reference tables hold returns, which {metric!r} is not; leave out --normalise, "
            "or take --metric return"
        )
    if metric not in RETURN_METRICS:
        return f"Reference tables hold returns, and {metric} is not a return."
    chosen = [load_table(name)] if name else _tables_by_name()
    among = [
        label for label in unique_labels(groups) if len(shared_environments(groups, [label])) > 1
    ]
    worlds = shared_environments(groups, among) if among else []
    if len(worlds) < 2:
        return "The algorithms have fewer than two environments in common."
    known = [[world for world in worlds if _has_task(one, world)] for one in chosen]
    best = max(range(len(chosen)), key=lambda at: len(known[at]))  # the first one of equals
    if len(known[best]) < 2:
        return _too_few_known(chosen[best], worlds, known[best], name)
    tables = {label: scores_table(groups, label, known[best], failed) for label in among}
    without_rule = [label for label in among if failed is None and has_failed(tables[label])]
    if len(without_rule) == len(among):
        return "Seeds of every algorithm failed; choose with --failed what they count as."
    made = {
        label: normalise(one, chosen[best])
        for label, one in tables.items()
        if label not in without_rule
    }
    left_out = [label for label in unique_labels(groups) if label not in among]
    unknown = [world for world in worlds if world not in known[best]]
    return NormalisedScores(chosen[best], known[best], made, left_out, unknown, without_rule)


def _too_few_known(
    table: Table, worlds: Sequence[str], known: Sequence[str], name: str | None
) -> str:
    """Return why scores on these environments cannot be normalised."""
    if not name:
        return (
            "No table of reference scores knows two of these environments, and scaling by the "
            "runs at hand would let every newcomer change everybody's numbers."
        )
    lacking = join_words([world for world in worlds if world not in known])
    return (
        f"The table {table.identity} knows fewer than two of the environments; it lacks {lacking}."
    )


def aggregate_estimates(
    made: NormalisedScores, *, level: float = 0.95, key: int = 0
) -> dict[str, dict[str, Estimate]]:
    """Return the estimate of every aggregate, by its title and by label."""
    return {
        title: {
            label: estimate(scores, what, level=level, key=key, failed="exclude")
            for label, scores in made.scores.items()
        }
        for what, title in AGGREGATES.items()
    }


def left_out_text(made: NormalisedScores) -> str:
    """Return sentences on the environments and labels that are not included, or ""."""
    parts = []
    if made.unknown:
        parts.append(f"Not in the table, and left out: {', '.join(made.unknown)}.")
    if made.left_out:
        parts.append(
            f"Left out for having fewer than two environments: {', '.join(made.left_out)}."
        )
    if made.without_rule:
        parts.append(f"Left out for failed seeds without --failed: {', '.join(made.without_rule)}.")
    return " ".join(parts)


def _tables_by_name() -> list[Table]:
    """Return all tables, each only with the environments that it lists by name."""
    names = sorted(tables(), key=lambda name: name in LAST_TABLES)
    return [dataclasses.replace(load_table(name), anything=None) for name in names]


def _has_task(one: Table, world: str) -> bool:
    try:
        one.references(world)
    except Mistake:
        return False
    return True
