"""The learning curve of a run as a picture: every seed, their mean, and how far to trust it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sterling import importing, statistics
from sterling.report import style
from sterling.report.damaged import read_json
from sterling.report.limits import limits
from sterling.report.metrics import Row, read
from sterling.report.runs import Curves, curves
from sterling.report.style import BLACK, BLUE, ORANGE
from sterling.statistics import Headline
from sterling.statistics.declared import Bounds
from sterling.statistics.folders import column, place

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(folder: str | Path) -> Path:
    """Draw ``metrics.jsonl`` and ``result.json`` of a run's ``folder`` as ``curve.png``.

    Thin lines are seeds (dashed up to a cross where one failed); the thick line is the mean of
    those that did not fail, where all of them are known, with its 95 % interval; the marker is
    the evaluation of the final policies with its interval. Where no episode has ended yet the
    picture says so.
    """
    folder = Path(folder)
    config, result = read_json(folder / "config.json"), read_json(folder / "result.json")
    rows = read(folder / "metrics.jsonl")
    found = curves(rows, config.get("seeds"))
    with style.applied():
        figure = style.figure(7.0, 4.2)
        axes = figure.subplots()
        _draw_seeds(axes, found)
        _draw_mean(axes, found, limits(config, result))
        _draw_final(axes, found, result)
        _dress(axes, config, rows)
        return style.save(figure, folder / "curve", ["png"])[0]


def _draw_seeds(axes: Axes, found: Curves) -> None:
    """One thin line per seed; rows without a finished episode are bridged."""
    single = len(found.returns) == 1
    for seed, returns in zip(found.seeds, found.returns, strict=True):
        known = np.isfinite(returns)
        x, y = found.steps[known], returns[known]
        if seed in found.failed:
            last: dict[str, Any] = (
                {"marker": "x", "ms": 7, "mew": 2, "markevery": [-1]} if y.size else {}
            )
            axes.plot(x, y, color=ORANGE, lw=0.9, ls="--", label=f"seed {seed} (failed)", **last)
        elif single and y.size:
            axes.plot(x, y, color=BLUE, lw=2.0, label=f"seed {seed}")
        else:
            axes.plot(x, y, color=BLUE, lw=0.8, alpha=0.45)


def _draw_mean(axes: Axes, found: Curves, ends: Bounds | None) -> None:
    """Mean and interval of the seeds that did not fail, over the steps at which all are known."""
    pairs = zip(found.seeds, found.returns, strict=True)
    whole = [
        np.interp(found.steps, found.steps[known], y[known], left=np.nan, right=np.nan)
        for seed, y in pairs
        if seed not in found.failed and (known := np.isfinite(y)).any()
    ]
    if len(whole) < 2:
        return
    filled = np.array(whole)
    complete = np.isfinite(filled).all(0)
    x = found.steps[complete]
    if not x.size:
        return
    made = statistics.curve(filled[:, complete], x, within=ends)
    of = (
        f"{len(whole)} of {len(found.seeds)} seeds, the others failed"
        if found.failed
        else (f"{len(whole)} seeds")
    )
    axes.plot(x, made.mean, color=BLUE, lw=2.2, label=f"mean of {of}, 95 % interval")
    if made.low is not None and made.high is not None:
        axes.fill_between(x, made.low, made.high, color=BLUE, alpha=0.18, lw=0)


def _draw_final(axes: Axes, found: Curves, result: dict[str, Any]) -> None:
    """The final policies' evaluation, a little to the right of the curve."""
    final = result.get("final", {}).get("return")
    if not final:
        return
    headline = Headline.from_json(final)
    made = headline.shown
    if made is None:
        return
    error = (
        None
        if made.low is None or made.high is None
        else [[made.value - made.low], [made.high - made.value]]
    )
    steps = np.append(found.steps, float(result.get("updates", result.get("steps", 0))))
    x = [steps.max() + 0.02 * np.ptp(steps)]
    look: dict[str, Any] = {"color": BLACK, "fmt": "D", "ms": 5, "capsize": 4, "zorder": 5}
    axes.errorbar(x, [made.value], error, label=f"final evaluation: {headline}", **look)


def _dress(axes: Axes, config: dict[str, Any], rows: list[Row]) -> None:
    """Labels, and nothing that is not needed."""
    of_log, judged = any("update" in row for row in rows), column(rows, "return")
    if config:
        algorithm, world = (importing.short(config[name]) for name in ("algorithm", "environment"))
        axes.set_title(f"{algorithm.upper()} on {world}")
    axes.set_xlabel("gradient updates per seed" if of_log else "environment steps per seed")
    kind = "evaluation" if judged.startswith("evaluation") else "training"
    axes.set_ylabel(f"return of {kind} episodes")
    if of_log and config.get("steps") and config.get("updates"):
        axes.axvline(config["updates"], color=BLACK, lw=0.8, ls=":", label="from here on it acts")
    ends = [place(a) for a, b in pairwise(rows) if a.get("phase", 1) != b.get("phase", 1)]
    for number, end in enumerate(ends):
        label = "the next phase begins" if not number else None
        axes.axvline(end, color=BLACK, lw=0.8, ls=":", label=label)
    style.grid(axes)
    axes.margins(x=0.02)
    if axes.get_legend_handles_labels()[0]:
        style.steps_axis(axes)
        axes.legend()
    else:
        axes.text(0.5, 0.5, "no episode has ended yet", ha="center", transform=axes.transAxes)
