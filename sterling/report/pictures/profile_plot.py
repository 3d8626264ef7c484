"""Draw normalised scores over several environments: aggregates and performance profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sterling.report.normalised_groups import NormalisedScores, aggregate_estimates
from sterling.report.pictures import plot_style
from sterling.report.pictures.interval_forest import IntervalRow
from sterling.statistics import Scores, profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROFILE_POINTS = 401  # thresholds of a profile


def aggregate_rows(
    made: NormalisedScores, *, level: float = 0.95, key: int = 0
) -> dict[str, list[IntervalRow]]:
    """Return one panel per aggregate, with a row per label."""
    found = aggregate_estimates(made, level=level, key=key)
    return {
        title: [IntervalRow(label, one) for label, one in each.items()]
        for title, each in found.items()
    }


def draw_profiles(made: NormalisedScores, order: Sequence[str], *, level: float = 0.95) -> Figure:
    """Draw performance profiles: the share of runs above each normalised score, with its band.

    ``order`` gives every label its colour.
    """
    looks = plot_style.palette(order)
    taus = _thresholds(made.scores)
    with plot_style.use_style():
        figure = plot_style.new_figure(plot_style.PAGE_WIDTH, 3.8)
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
        plot_style.add_grid(axes)
        axes.legend(loc="upper right")
        return figure


def _thresholds(scores: Mapping[str, Scores]) -> np.ndarray:
    """Return thresholds from 0, or the lowest score, to a little above the highest."""
    known = np.concatenate([one.values[np.isfinite(one.values)] for one in scores.values()])
    low, high = min(0.0, float(known.min())), max(1.0, float(known.max()))
    return np.linspace(low, high + 0.02 * (high - low), PROFILE_POINTS)
