"""Learning curves of several algorithms, one panel per environment.

The thick line is the median of the seeds at each step, the band holds their percentiles, the thin
lines are the seeds themselves; a seed that failed is dashed up to a cross and is in neither
median nor band. (Median and percentiles, not mean and deviation: arXiv:2606.06746.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sterling.report import style
from sterling.report.groups import Group, environments, labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 3.5, 2.6  # inches of a panel
PLOT = 0.72  # share of a panel's height that is axes, about


def learning(groups: Sequence[Group], ylabel: str = "") -> Figure:
    """The picture. Groups without a log have no curve; a panel without any says so. ``ylabel``: by
    default the return, and of which episodes."""
    worlds, looks = environments(groups), style.palette(labels(groups))
    columns = min(len(worlds), 3)
    rows = math.ceil(len(worlds) / columns)
    with style.applied():
        figure = style.figure(WIDTH * columns + 0.3, HEIGHT * rows)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, world in zip(grid, worlds, strict=False):
            _panel(axes, [one for one in groups if one.environment == world], looks)
            axes.set_title(world)
        for axes in grid[len(worlds) :]:
            axes.set_axis_off()
        for at, (axes, world) in enumerate(zip(grid, worlds, strict=False)):
            if at + columns >= len(worlds):
                axes.set_xlabel(axis_of([one for one in groups if one.environment == world]))
            if at % columns == 0 or _episodes(groups, world) != _episodes(groups, worlds[at - 1]):
                axes.set_ylabel(ylabel or f"return of {_episodes(groups, world)} episodes")
        return figure


def _episodes(groups: Sequence[Group], world: str) -> str:
    """Which episodes the returns of a world's curves are of."""
    met = set().union(*(one.episodes for one in groups if one.environment == world))
    return "\nor ".join(sorted(met, reverse=True)) or "training"  # in one line it is too long


def axis_of(groups: Sequence[Group]) -> str:
    """What the x axis counts."""
    units = set().union(*(one.counted for one in groups))
    if len(units) > 1:
        return "environment steps, or updates, per seed"
    return "gradient updates per seed" if units == {"updates"} else "environment steps per seed"


def _panel(axes: Axes, groups: list[Group], looks: dict[str, dict[str, Any]]) -> None:
    ends: dict[str, float] = {}
    for group in groups:
        end = _draw(axes, group, looks[group.label])
        if end is not None:
            ends[group.label] = end
    style.grid(axes)
    if not ends:
        axes.text(0.5, 0.5, "no log to draw", ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    style.steps_axis(axes)
    axes.margins(x=0.0)
    style.end_labels(axes, ends, looks, HEIGHT * PLOT)


def _draw(axes: Axes, group: Group, look: dict[str, Any]) -> float | None:
    """One group; where its curve ends, or None if there is none."""
    from sterling.statistics import curve

    steps, values = group.curves()
    failed = _draw_failed(axes, group, look)
    if not values.size:
        return failed
    thin: dict[str, Any] = {
        "color": look["color"],
        "lw": 0.5,
        "alpha": 0.35 if len(values) > 1 else 1.0,
    }
    for row in values:
        axes.plot(steps, row, **thin)
    whole = np.isfinite(values).all(0)
    if len(values) == 1 or whole.sum() < 2:
        known = np.isfinite(values)
        axes.plot(steps, values[0], **look, lw=1.6) if len(values) == 1 else None
        return float(values[known][-1])
    made = curve(values[:, whole], steps[whole])
    axes.plot(steps[whole], made.median, **look, lw=1.9, zorder=3)
    band = {"color": look["color"], "alpha": 0.16, "lw": 0}
    axes.fill_between(steps[whole], made.band_low, made.band_high, **band)
    return float(made.median[-1])


def _draw_failed(axes: Axes, group: Group, look: dict[str, Any]) -> float | None:
    """Dashes up to a cross for every seed that failed; where the last one ends."""
    end = None
    for result in group.results:
        found = result.curves
        for seed in found.failed:
            values = found.returns[found.seeds.index(seed)]
            known = np.isfinite(values)
            if not known.any():
                continue
            x, y = found.steps[known], values[known]
            cross: dict[str, Any] = {"marker": "x", "ms": 6, "mew": 1.6, "markevery": [-1]}
            axes.plot(x, y, color=look["color"], lw=0.8, ls=(0, (3, 2)), **cross)
            end = float(y[-1])
    return end
