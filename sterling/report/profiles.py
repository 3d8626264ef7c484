"""Normalised scores over several environments: aggregates and performance profiles.

Only with a fixed table of references: dividing by the best and worst of the runs at hand would
let every newcomer change everybody's numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sterling.report import style
from sterling.report.forest import Line
from sterling.report.groups import Group, labels
from sterling.report.overall import has_failed, shared, table
from sterling.statistics import Scores, Table, estimate, normalise, profile, tables
from sterling.statistics import table as load_table
from sterling.statistics.scores import Failed
from sterling.types import Mistake

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGGREGATES = {
    "iqm": "interquartile mean",
    "median": "median",
    "mean": "mean",
    "gap": "optimality gap (lower is better)",
}
RETURNS = ("return", "data/return", "evaluation/return")  # what tables have references of
LAST = ("d4rl",)  # offline data sets that share their names with worlds
POINTS = 401  # thresholds of a profile


@dataclasses.dataclass(frozen=True)
class Normalised:
    """Normalised scores, on the environments that all the labels share and the table knows."""

    table: Table
    environments: list[str]
    scores: dict[str, Scores]  # by label
    left_out: list[str]  # labels with scores on fewer than two environments
    unknown: list[str]  # environments that the table does not know
    unsaid: list[str]  # labels with failed seeds, of which nothing says what they count as


def normalised(
    groups: Sequence[Group],
    name: str | None = None,
    metric: str = "return",
    failed: Failed = None,
) -> Normalised | str:
    """The scores by the table called ``name``, by default the one that knows most of the shared
    environments; or, in words, why there are none. ``metric``: what was scored.
    ``failed``: what a failed seed counts as; without it labels of which one failed are left out.

    Raises Mistake for a name that no table has, and for one where returns were not scored.
    """
    if metric not in RETURNS and name:
        raise Mistake(
            f"tables of references are of returns, and {metric!r} is none; leave out --normalise, "
            "or take --metric return"
        )
    if metric not in RETURNS:
        return f"Tables of reference scores are of returns, and {metric} is none."
    chosen = [load_table(name)] if name else _tables()
    among = [label for label in labels(groups) if len(shared(groups, [label])) > 1]
    worlds = shared(groups, among) if among else []
    if len(worlds) < 2:
        return "The algorithms have fewer than two environments in common."
    known = [[world for world in worlds if _knows(one, world)] for one in chosen]
    best = max(range(len(chosen)), key=lambda at: len(known[at]))  # the first of equals
    if len(known[best]) < 2:
        return (
            "No table of reference scores knows two of these environments, and scaling by the "
            "runs at hand would let every newcomer change everybody's numbers."
        )
    tables = {label: table(groups, label, known[best], failed) for label in among}
    unsaid = [label for label in among if failed is None and has_failed(tables[label])]
    if len(unsaid) == len(among):
        return "Seeds of every algorithm failed, and nothing says what they count as (--failed)."
    made = {
        label: normalise(one, chosen[best]) for label, one in tables.items() if label not in unsaid
    }
    left_out = [label for label in labels(groups) if label not in among]
    unknown = [world for world in worlds if world not in known[best]]
    return Normalised(chosen[best], known[best], made, left_out, unknown, unsaid)


def aggregates(made: Normalised, *, level: float = 0.95, key: int = 0) -> dict[str, list[Line]]:
    """One panel per aggregate, a row per label."""
    return {
        title: [
            Line(label, estimate(scores, what, level=level, key=key, failed="exclude"))
            for label, scores in made.scores.items()
        ]
        for what, title in AGGREGATES.items()
    }


def draw(made: Normalised, order: Sequence[str], *, level: float = 0.95) -> Figure:
    """Performance profiles: the share of runs above each normalised score, with its band.

    ``order`` gives every label its colour.
    """
    looks = style.palette(order)
    taus = _thresholds(made.scores)
    with style.applied():
        figure = style.figure(5.6, 3.4)
        axes = figure.subplots()
        for label, scores in made.scores.items():
            line = profile(scores, taus, level=level, failed="exclude")
            axes.plot(taus, line.value, **looks[label], lw=1.7, label=label)
            if line.low is not None and line.high is not None:
                colour = looks[label]["color"]
                axes.fill_between(taus, line.low, line.high, color=colour, alpha=0.15, lw=0)
        axes.set_xlabel(f"normalised score ({made.table.identity})")
        axes.set_ylabel("share of runs above it")
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(taus[0], taus[-1])
        style.grid(axes)
        axes.legend(loc="upper right")
        return figure


def _tables() -> list[Table]:
    """All tables, each only with the environments that it lists by name."""
    names = sorted(tables(), key=lambda name: name in LAST)
    return [dataclasses.replace(load_table(name), anything=None) for name in names]


def _knows(one: Table, world: str) -> bool:
    try:
        one.of(world)
    except Mistake:
        return False
    return True


def _thresholds(scores: Mapping[str, Scores]) -> np.ndarray:
    """From 0, or the lowest score, to a little above the highest."""
    known = np.concatenate([one.values[np.isfinite(one.values)] for one in scores.values()])
    low, high = min(0.0, float(known.min())), max(1.0, float(known.max()))
    return np.linspace(low, high + 0.02 * (high - low), POINTS)
