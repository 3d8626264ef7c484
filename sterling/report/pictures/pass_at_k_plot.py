"""Draw pass@k over k: the share of problems solved by the best of k answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from sterling.report.pictures import plot_style
from sterling.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^v"  # colours alone are lost in black-and-white print
MAX_INTERVAL_WIDTH = 0.7
WIDTH, HEIGHT = 3.9, 2.7  # inches: one column of a paper


def draw_pass_at_k(
    curves: Mapping[str, Mapping[int, Estimate]],
    title: str,
    seeds: Mapping[str, Mapping[int, Sequence[float]]],
) -> Figure:
    """Draw a line for every label, its interval as a band, its seeds as thin lines, over log k.

    ``curves``: label -> k -> estimate; ``seeds``: label -> k -> each seed's value. A single k is
    drawn as points with error bars. Where intervals are wider than ``MAX_INTERVAL_WIDTH`` at every
    k, they are not drawn, and the picture says so.
    """
    looks = plot_style.palette(list(curves))
    with plot_style.use_style():
        figure = plot_style.new_figure(WIDTH, HEIGHT)
        axes = figure.subplots()
        for label, curve, marker in zip(curves, curves.values(), cycle(MARKERS), strict=False):
            _draw_curve(axes, curve, looks[label]["color"], marker)
            apart = [seeds[label][k] for k in sorted(curve)]
            if len(apart[0]) > 1:
                axes.plot(sorted(curve), apart, color=looks[label]["color"], lw=0.6, alpha=0.5)
        ks = sorted({k for curve in curves.values() for k in curve})
        figure.suptitle(title, x=0.01, ha="left", size="medium", weight="bold")  # above every label
        _label_axes(axes, ks)
        if any(map(_is_too_wide, curves.values())):
            words = f"thin: seeds; intervals wider than {MAX_INTERVAL_WIDTH} are not drawn"
            place: dict[str, Any] = {
                "transform": axes.transAxes,
                "ha": "right",
                "color": plot_style.FAINT,
            }
            axes.text(1.0, 0.045, words, fontsize=6.5, **place)
        ends = {label: curve[max(curve)].value for label, curve in curves.items()}
        plot_style.draw_end_labels(axes, ends, looks, HEIGHT - 0.9)
        return figure


def _draw_curve(axes: Axes, curve: Mapping[int, Estimate], colour: str, marker: str) -> None:
    ks = sorted(curve)
    values = [curve[k].value for k in ks]
    axes.plot(ks, values, color=colour, lw=1.8, marker=marker, ms=4, zorder=3)
    low, high = ([_end_or_value(curve[k], end) for k in ks] for end in ("low", "high"))
    if _is_too_wide(curve):
        return
    if len(ks) > 1:
        axes.fill_between(ks, low, high, color=colour, alpha=0.15, lw=0)
    else:
        axes.plot([ks[0]] * 2, [low[0], high[0]], color=colour, lw=1.2)


def _is_too_wide(curve: Mapping[int, Estimate]) -> bool:
    return all(
        _end_or_value(made, "high") - _end_or_value(made, "low") > MAX_INTERVAL_WIDTH
        for made in curve.values()
    )


def _end_or_value(made: Estimate, end: str) -> float:
    """Return an end of the interval, or the value where there is no interval."""
    found = getattr(made, end)
    return made.value if found is None else float(found)


def _label_axes(axes: Axes, ks: list[int]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "0.25", "0.5", "0.75", "1"])
    axes.set_xlabel("answers k")
    axes.set_ylabel("pass@k")
    plot_style.add_grid(axes)
