"""Draw the learning curve of a run: every seed, their mean, and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sterling import statistics
from sterling.lookup import user_imports
from sterling.report.live.metric_sinks import Row, read_metrics
from sterling.report.pictures import plot_style
from sterling.report.pictures.plot_style import BLACK, BLUE, ORANGE
from sterling.report.runs.checked_run_files import read_json
from sterling.report.runs.read_return_bounds import return_limits
from sterling.report.runs.read_runs import SeedCurves, curves_from_rows
from sterling.statistics import Headline
from sterling.statistics.scores.headline import HELD_OUT_LOSS
from sterling.statistics.scores.run_folder_scores import metric_column, row_progress
from sterling.statistics.scores.score_bounds import Bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT, LEGEND_LINE = 4.0, 0.19  # inches: of the axes with their labels, of a line of the legend
CUT = " (it goes beyond the picture)"


def draw_run_curve(folder: str | Path) -> Path:
    """Draw ``metrics.jsonl`` and ``result.json`` of a run's ``folder`` as ``curve.png``.

    Thin lines are seeds (dashed up to a cross where one failed); the thick line is the mean of
    those that did not fail, where all of them are known, with its 95 % interval; the marker is the
    evaluation of the final policies with its interval. The axis is that of the curves: an interval
    that is far wider, such as that of two seeds, is cut, and the legend says so. Where no episode
    has ended yet the picture says so. Runs on texts alone show the loss on held-out texts.
    """
    folder = Path(folder)
    config, result = read_json(folder / "config.json"), read_json(folder / "result.json")
    rows = read_metrics(folder / "metrics.jsonl")
    metric = HELD_OUT_LOSS if any(HELD_OUT_LOSS in row for row in rows) else "return"
    curves = curves_from_rows(rows, config.get("seeds"), metric_column(rows, metric))
    with plot_style.use_style():
        figure = plot_style.new_figure(7.0, HEIGHT)
        axes = figure.subplots()
        _draw_seeds(axes, curves)
        _draw_mean(axes, curves, return_limits(config, result) if metric == "return" else None)
        final = _draw_final(axes, curves, result, metric)
        _limit_axis(axes, [*curves.returns.ravel(), *final])
        _label_axes(axes, config, rows, metric)
        return plot_style.save_figure(figure, folder / "curve", ["png"])[0]


def _draw_seeds(axes: Axes, curves: SeedCurves) -> None:
    """Draw one thin line per seed, interpolated over rows without a finished episode."""
    single = len(curves.returns) == 1
    for seed, returns in zip(curves.seeds, curves.returns, strict=True):
        known = np.isfinite(returns)
        x, y = curves.steps[known], returns[known]
        if seed in curves.failed:
            last: dict[str, Any] = (
                {"marker": "x", "ms": 7, "mew": 2, "markevery": [-1]} if y.size else {}
            )
            axes.plot(x, y, color=ORANGE, lw=0.9, ls="--", label=f"seed {seed} (failed)", **last)
        elif single and y.size:
            axes.plot(x, y, color=BLUE, lw=2.0, label=f"seed {seed}")
        else:
            axes.plot(x, y, color=BLUE, lw=0.8, alpha=0.45)


def _draw_mean(axes: Axes, curves: SeedCurves, bounds: Bounds | None) -> None:
    """Draw mean and interval of the seeds that did not fail, at the steps where all are known."""
    pairs = zip(curves.seeds, curves.returns, strict=True)
    whole = [
        np.interp(curves.steps, curves.steps[known], y[known], left=np.nan, right=np.nan)
        for seed, y in pairs
        if seed not in curves.failed and (known := np.isfinite(y)).any()
    ]
    if len(whole) < 2:
        return
    filled = np.array(whole)
    complete = np.isfinite(filled).all(0)
    x = curves.steps[complete]
    if not x.size:
        return
    made = statistics.curve(filled[:, complete], x, within=bounds)
    which = (
        f"{len(whole)} of {len(curves.seeds)} seeds, the others failed"
        if curves.failed
        else (f"{len(whole)} seeds")
    )
    axes.plot(x, made.mean, color=BLUE, lw=2.2, label=f"mean of {which}, 95 % interval")
    if made.low is not None and made.high is not None:
        axes.fill_between(x, made.low, made.high, color=BLUE, alpha=0.18, lw=0)


def _draw_final(axes: Axes, curves: SeedCurves, result: dict[str, Any], metric: str) -> list[float]:
    """Draw the final policies' evaluation, slightly right of the curve; return its value, if there
    is one."""
    final = result.get("final", {}).get(metric)
    if not final:
        return []
    headline = Headline.from_json(final)
    made = headline.shown
    if made is None:
        return []
    error = (
        None
        if made.low is None or made.high is None
        else [[made.value - made.low], [made.high - made.value]]
    )
    steps = np.append(curves.steps, float(result.get("updates", result.get("steps", 0))))
    x = [steps.max() + 0.02 * np.ptp(steps)]
    look: dict[str, Any] = {"color": BLACK, "fmt": "D", "ms": 5, "capsize": 4, "zorder": 5}
    axes.errorbar(x, [made.value], error, label=f"final evaluation: {headline}", **look)
    return [made.value]


def _limit_axis(axes: Axes, values: Sequence[float]) -> None:
    """Limit the axis of returns; the mean's label says if an interval is cut."""
    is_cut = plot_style.limit_axis(axes, values)
    mean = [line for line in axes.get_lines() if "interval" in str(line.get_label())]
    if mean and is_cut:
        mean[0].set_label(f"{mean[0].get_label()}{CUT}")


def _label_axes(axes: Axes, config: dict[str, Any], rows: list[Row], metric: str) -> None:
    """Add title, axis labels and legend."""
    counts_updates, column = any("update" in row for row in rows), metric_column(rows, metric)
    if config:
        algorithm, world = (
            user_imports.short_name(config[name]) for name in ("algorithm", "environment")
        )
        axes.set_title(f"{algorithm.upper()} on {world}" if world else algorithm.upper())
    axes.set_xlabel("gradient updates per seed" if counts_updates else "environment steps per seed")
    kind = "evaluation" if column.startswith("evaluation") else "training"
    axes.set_ylabel(f"return of {kind} episodes" if metric == "return" else metric)
    if counts_updates and config.get("steps") and config.get("updates"):
        axes.axvline(
            config["updates"], color=BLACK, lw=0.8, ls=":", label="environment steps begin"
        )
    ends = [row_progress(a) for a, b in pairwise(rows) if a.get("phase", 1) != b.get("phase", 1)]
    for number, end in enumerate(ends):
        label = "the next phase begins" if not number else None
        axes.axvline(end, color=BLACK, lw=0.8, ls=":", label=label)
    plot_style.add_grid(axes)
    axes.margins(x=0.02)
    if axes.get_legend_handles_labels()[0]:
        plot_style.format_steps_axis(axes)
        _place_legend(axes)
    else:
        acts = not config or config.get("environment")
        said = "no episode has ended yet" if acts else "nothing was evaluated"
        axes.text(0.5, 0.5, said, ha="center", transform=axes.transAxes)


def _place_legend(axes: Axes) -> None:
    """Put the legend below the axes, where it hides no curve, and make room for it."""
    count = len(axes.get_legend_handles_labels()[0])
    columns = 1 if count <= 3 else 2
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.14), borderaxespad=0.0, ncols=columns)
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.set_size_inches(7.0, HEIGHT + LEGEND_LINE * -(-count // columns))
