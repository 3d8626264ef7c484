"""Draw intervals one below the other: one row per algorithm, one panel per task or aggregate.

The dot is the estimate, the thick line its interval. Below it the hollow points are the runs, and
the thin line is the tolerance band: the range of single runs, not of their mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from sterling.report.pictures import plot_style
from sterling.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_HEIGHT = 0.3  # inches
RUNS_OFFSET = 0.25  # of a row's height: runs are drawn so far below the estimate


@dataclasses.dataclass(frozen=True)
class IntervalRow:
    """The content of one row: an estimate and, if given, its runs and their tolerance band."""

    label: str
    estimate: Estimate
    runs: Float[np.ndarray, "run"] | None = None
    tolerance: tuple[float, float] | None = None
    text: str | None = None  # text right of the row; by default the estimate


def draw_intervals(
    panels: Mapping[str, Sequence[IntervalRow]],
    xlabel: str,
    order: Sequence[str],
    line: float | None = None,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw the panels, given as title -> rows.

    ``order`` gives every label its colour; ``line`` is a value to compare with (0.5 for a
    probability); ``limits`` are the ends of the x axis where it is fixed.
    """
    looks = plot_style.palette(order)
    columns = min(len(panels), 2)
    counts = [len(lines) for lines in panels.values()]
    heights = [max(counts[at : at + columns]) for at in range(0, len(counts), columns)]
    sizes = [ROW_HEIGHT * height + 0.7 for height in heights]
    with plot_style.use_style():
        width = max(4.9 * columns, plot_style.PAGE_WIDTH)
        figure = plot_style.new_figure(width, sum(sizes), between=0.16)
        grid = figure.subplots(len(heights), columns, squeeze=False, height_ratios=sizes).ravel()
        for at, (title, lines) in enumerate(panels.items()):
            _draw_panel(grid[at], lines, looks, line, limits)
            grid[at].set_ylim(heights[at // columns] - 0.3, -0.6)  # rows of one height everywhere
            grid[at].set_title(title)
            if at + columns >= len(panels):
                grid[at].set_xlabel(xlabel)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        return figure


def _draw_panel(
    axes: Axes,
    lines: Sequence[IntervalRow],
    looks: dict[str, dict[str, Any]],
    line: float | None,
    limits: tuple[float, float] | None,
) -> None:
    from matplotlib.ticker import MaxNLocator

    if line is not None:
        axes.axvline(line, color=plot_style.FAINT, lw=0.8, ls=(0, (3, 2)))
    for at, one in enumerate(lines):
        _draw_row(axes, at, one, looks.get(one.label, {"color": plot_style.INK})["color"])
    if limits:
        axes.set_xlim(*limits)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_yticks(range(len(lines)), [one.label for one in lines])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    plot_style.add_grid(axes, "x")
    for at, one in enumerate(lines):
        words = (one.text or str(one.estimate)).replace(", no interval", "")
        place: dict[str, Any] = {
            "transform": axes.get_yaxis_transform(),
            "va": "center",
            "fontsize": 8,
        }
        axes.text(1.03, at, words, **place)


def _draw_row(axes: Axes, at: int, one: IntervalRow, colour: str) -> None:
    if one.tolerance is not None:
        axes.plot(one.tolerance, [at + RUNS_OFFSET] * 2, color=colour, lw=0.7, alpha=0.8)
    if one.runs is not None:
        known = one.runs[np.isfinite(one.runs)]
        hollow: dict[str, Any] = {
            "mfc": "white",
            "mec": colour,
            "mew": 0.7,
            "ms": 3.6,
            "alpha": 0.75,
        }
        axes.plot(known, np.full(known.size, at + RUNS_OFFSET), ls="none", marker="o", **hollow)
    if one.estimate.low is not None and one.estimate.high is not None:
        axes.plot([one.estimate.low, one.estimate.high], [at, at], color=colour, lw=3.2, alpha=0.55)
    axes.plot([one.estimate.value], [at], marker="o", ms=5.5, color=colour, zorder=4)
