"""Build the rows of the interval pictures from the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sterling.report.overall_scores import OverallComparison, TrainingMeans
from sterling.report.pairwise_contest import EnvironmentComparison
from sterling.report.pictures.interval_forest import IntervalRow
from sterling.report.text_tables import format_steps, pluralise
from sterling.statistics.comparisons.comparison_result import format_probability


def score_rows(
    comparisons: Sequence[EnvironmentComparison], coverage: float = 0.8
) -> dict[str, list[IntervalRow]]:
    """Return one panel per environment: each label's mean, interval, runs and tolerance band."""
    from sterling.statistics import tolerance

    panels: dict[str, list[IntervalRow]] = {}
    for one in comparisons:
        for at in one.standings:
            shown = at.made.shown
            if shown is None:
                continue
            label = at.label if at.made.made is not None else f"{at.label} (without failed seeds)"
            known = at.scores[np.isfinite(at.scores)]
            spread = tolerance(known, coverage)
            ends = None if spread.low is None or spread.high is None else (spread.low, spread.high)
            panels.setdefault(one.environment, []).append(IntervalRow(label, shown, known, ends))
    return panels


def probability_rows(
    comparisons: Sequence[EnvironmentComparison], overall: Sequence[OverallComparison]
) -> dict[str, list[IntervalRow]]:
    """Return the probabilities that the first of two is better, per environment and overall."""
    panels = {
        one.environment: [
            IntervalRow(
                f"{pair.first} > {pair.second}", pair.better, text=format_probability(pair.better)
            )
            for pair in one.pairs
            if pair.better is not None
        ]
        for one in comparisons
    }
    panels = {title: lines for title, lines in panels.items() if lines}
    for one in overall:
        title = f"over {pluralise(len(one.environments), 'environment')}"
        panels.setdefault(title, []).append(
            IntervalRow(f"{one.first} > {one.second}", one.made, text=format_probability(one.made))
        )
    return panels


def area_rows(
    found: dict[str, TrainingMeans], order: Sequence[str], units: Mapping[str, str]
) -> dict[str, list[IntervalRow]]:
    """Return mean returns over training, a panel per environment; ``units`` names what is
    counted."""
    return {
        f"{world}, first {format_steps(end)} {units.get(world, 'steps')}": [
            IntervalRow(label, made[label]) for label in order if label in made
        ]
        for world, (end, made) in found.items()
    }
