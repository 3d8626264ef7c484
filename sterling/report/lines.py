"""What the interval pictures show, put together from the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sterling.report.contest import Contest
from sterling.report.forest import Line
from sterling.report.overall import Areas, Better
from sterling.report.text import count, steps
from sterling.statistics.comparison import chance


def finals(contests: Sequence[Contest], coverage: float = 0.8) -> dict[str, list[Line]]:
    """One panel per environment: each label's mean, its interval, its runs, where runs lie."""
    from sterling.statistics import tolerance

    panels: dict[str, list[Line]] = {}
    for one in contests:
        for at in one.standings:
            shown = at.made.shown
            if shown is None:
                continue
            label = at.label if at.made.made is not None else f"{at.label} (without failed seeds)"
            known = at.scores[np.isfinite(at.scores)]
            spread = tolerance(known, coverage)
            ends = None if spread.low is None or spread.high is None else (spread.low, spread.high)
            panels.setdefault(one.environment, []).append(Line(label, shown, known, ends))
    return panels


def chances(contests: Sequence[Contest], overall: Sequence[Better]) -> dict[str, list[Line]]:
    """The probability that the first of two is the better run, per environment and over all."""
    panels = {
        one.environment: [
            Line(f"{pair.first} > {pair.second}", pair.better, words=chance(pair.better))
            for pair in one.pairs
            if pair.better is not None
        ]
        for one in contests
    }
    panels = {title: lines for title, lines in panels.items() if lines}
    for one in overall:
        title = f"over {count(len(one.environments), 'environment')}"
        panels.setdefault(title, []).append(
            Line(f"{one.first} > {one.second}", one.made, words=chance(one.made))
        )
    return panels


def areas(
    found: dict[str, Areas], order: Sequence[str], units: Mapping[str, str]
) -> dict[str, list[Line]]:
    """Mean return over training, one panel per environment; ``units``: what it counts, if not
    steps."""
    return {
        f"{world}, first {steps(end)} {units.get(world, 'steps')}": [
            Line(label, made[label]) for label in order if label in made
        ]
        for world, (end, made) in found.items()
    }
