"""Draw learning curves of several algorithms, one panel per environment.

The thick line is the mean of the seeds at each step and the band its interval, as in ``curve.png``
and on the page of ``sterling watch``; the thin lines are the seeds themselves; the diamond at the
last step is the final evaluation. A seed that failed is dashed up to a cross and is in neither mean
nor band.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sterling.report.pictures import plot_style
from sterling.report.runs.run_groups import RunGroup, unique_environments, unique_labels
from sterling.statistics import Headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 3.5, 2.6  # inches of a panel among others
WHOLE_HEIGHT = 3.4  # inches of a panel that has the page's width
FINAL_GAP = 0.015  # of the steps: between the final evaluations of a panel
AXES_SHARE = 0.72  # approximate share of a panel's height that the axes take
Finals = Mapping[tuple[str, str], Headline]  # by label and environment


def draw_learning_curves(
    groups: Sequence[RunGroup],
    ylabel: str = "",
    *,
    finals: Finals | None = None,
    level: float = 0.95,
) -> Figure:
    """Draw the learning curves of all groups.

    Groups without a log have no curve; a panel without any says so. ``ylabel``: by default the
    return, with the kind of episodes it comes from. ``finals``: the final evaluations to draw.
    ``level``: the confidence of the intervals.
    """
    worlds, looks = unique_environments(groups), plot_style.palette(unique_labels(groups))
    columns = 2 if len(worlds) == 4 else min(len(worlds), 3)
    rows = math.ceil(len(worlds) / columns)
    width = max(WIDTH * columns + 0.3, plot_style.PAGE_WIDTH)
    height = HEIGHT if columns > 1 else WHOLE_HEIGHT
    with plot_style.use_style():
        figure = plot_style.new_figure(width, height * rows)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, world in zip(grid, worlds, strict=False):
            own = [one for one in groups if one.environment == world]
            ends = _draw_panel(axes, own, looks, finals or {}, level)
            plot_style.draw_end_labels(axes, ends, looks, height * AXES_SHARE)
            axes.set_title(world)
        for axes in grid[len(worlds) :]:
            axes.set_axis_off()
        for at, (axes, world) in enumerate(zip(grid, worlds, strict=False)):
            if at + columns >= len(worlds):
                axes.set_xlabel(steps_label([one for one in groups if one.environment == world]))
            if at % columns == 0 or _episode_kind(groups, world) != _episode_kind(
                groups, worlds[at - 1]
            ):
                axes.set_ylabel(ylabel or f"return of {_episode_kind(groups, world)} episodes")
        return figure


def _episode_kind(groups: Sequence[RunGroup], world: str) -> str:
    """Return which episodes the returns of an environment's curves come from."""
    met = set().union(*(one.episodes for one in groups if one.environment == world))
    return "\nor ".join(sorted(met, reverse=True)) or "training"  # too long for one line


def steps_label(groups: Sequence[RunGroup]) -> str:
    """Return the label of the x axis: what it counts."""
    units = set().union(*(one.axis_units for one in groups))
    if len(units) > 1:
        return "environment steps, or updates, per seed"
    return "gradient updates per seed" if units == {"updates"} else "environment steps per seed"


def _draw_panel(
    axes: Axes,
    groups: list[RunGroup],
    looks: dict[str, dict[str, Any]],
    finals: Finals,
    level: float,
) -> dict[str, float]:
    """Draw an environment's groups; return where each one's curve ends."""
    ends: dict[str, float] = {}
    for group in groups:
        end = _draw_group(axes, group, looks[group.label], level)
        if end is not None:
            ends[group.label] = end
    plot_style.add_grid(axes)
    if not ends:
        axes.text(0.5, 0.5, "no log to draw", ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return ends
    lines = [y for line in axes.get_lines() for y in np.asarray(line.get_ydata(), np.float64)]
    drawn = [one for one in groups if (one.label, one.environment) in finals]
    shown = [
        _draw_final(axes, (one, at), finals[one.label, one.environment], looks[one.label])
        for at, one in enumerate(drawn)
    ]
    plot_style.limit_axis(axes, [*lines, *shown])
    plot_style.format_steps_axis(axes)
    axes.margins(x=0.0)
    return ends


def _draw_group(axes: Axes, group: RunGroup, look: dict[str, Any], level: float) -> float | None:
    """Draw one group; return its curve's last value, or None if there is none."""
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
    made = curve(values[:, whole], steps[whole], level=level, within=group.within)
    axes.plot(steps[whole], made.mean, **look, lw=1.9, zorder=3)
    if made.low is not None and made.high is not None:
        band = {"color": look["color"], "alpha": 0.16, "lw": 0}
        axes.fill_between(steps[whole], made.low, made.high, **band)
    return float(made.mean[-1])


def _draw_final(
    axes: Axes, numbered: tuple[RunGroup, int], final: Headline, look: dict[str, Any]
) -> float:
    """Draw a group's final evaluation with its interval where its runs end, the group's number
    beside the others; return its value, NaN if there is none."""
    (group, number), made = numbered, final.shown
    if made is None:
        return math.nan
    (unit, *_) = group.axis_units
    ends = [float(one.result.get(unit) or 0) for one in group.results]
    ends += [float(one.curves.steps[-1]) for one in group.results if one.curves.steps.size]
    error = None
    if made.low is not None and made.high is not None:
        error = [[made.value - made.low], [made.high - made.value]]
    style: dict[str, Any] = {"fmt": "D", "ms": 4.5, "capsize": 3, "lw": 1.1, "zorder": 5}
    place = max(ends) * (1 + FINAL_GAP * number)
    axes.errorbar([place], [made.value], error, color=look["color"], **style)
    return float(made.value)


def _draw_failed(axes: Axes, group: RunGroup, look: dict[str, Any]) -> float | None:
    """Draw every failed seed dashed up to a cross; return where the last one ends."""
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
