"""The learning curve of a run as a picture: every seed, their mean, and how far to trust it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from sterling.report.metrics import Row, read
from sterling.statistics import Estimate, estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, BLACK = "#0072B2", "#D55E00", "#000000"  # Okabe & Ito: colour-blind safe


@dataclasses.dataclass(frozen=True)
class Curves:
    """Training returns per seed over environment steps."""

    steps: Float[np.ndarray, "row"]
    returns: Float[np.ndarray, "seed row"]  # NaN where no episode ended, and from failure on
    seeds: list[int]
    failed: dict[int, float]  # seed -> the step its failure was noticed at


def draw(folder: str | Path) -> Path:
    """Draw ``metrics.jsonl`` and ``result.json`` of a run's ``folder`` as ``curve.png``.

    Thin lines are seeds (dashed up to a cross where one failed); the thick line is the mean of
    those that did not fail, where all of them are known, with its 95 % t interval; the marker is
    the evaluation of the final policies with its interval. Where no episode has ended yet the
    picture says so.
    """
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    folder = Path(folder)
    config, result = _json(folder / "config.json"), _json(folder / "result.json")
    curves = _curves(read(folder / "metrics.jsonl"), config.get("seeds"))
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.subplots()
    _draw_seeds(axes, curves)
    _draw_mean(axes, curves)
    _draw_final(axes, curves, result)
    _dress(axes, config)
    figure.savefig(folder / "curve.png", dpi=150)
    return folder / "curve.png"


def _curves(rows: list[Row], seeds: list[int] | None) -> Curves:
    """The rows as arrays."""
    rows = [row for row in rows if "data/return" in row]
    if not rows:
        return Curves(np.zeros(0), np.zeros((0, 0)), [], {})
    returns = np.array([row["data/return"] for row in rows], np.float64).T
    steps = np.array([row["step"] for row in rows], np.float64)
    seeds = seeds or list(range(len(returns)))
    failed: dict[int, float] = {}
    for row in rows:
        for seed in row.get("failed", []):
            failed.setdefault(seed, float(row["step"]))
    for seed, step in failed.items():
        returns[seeds.index(seed), steps > step] = np.nan
    return Curves(steps, returns, seeds, failed)


def _draw_seeds(axes: Axes, curves: Curves) -> None:
    """One thin line per seed; rows without a finished episode are bridged."""
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


def _draw_mean(axes: Axes, curves: Curves) -> None:
    """Mean and t band of the seeds that did not fail, over the steps at which all are known."""
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
    bands = [estimate(scores) for scores in filled.T[complete]]
    low, high = ([getattr(band, end) for band in bands] for end in ("low", "high"))
    x = curves.steps[complete]
    note = f"mean of {len(whole)} seeds, 95 % interval"
    axes.plot(x, [band.value for band in bands], color=BLUE, lw=2.2, label=note)
    axes.fill_between(x, low, high, color=BLUE, alpha=0.18, lw=0)


def _draw_final(axes: Axes, curves: Curves, result: dict[str, Any]) -> None:
    """The final policies' evaluation, a little to the right of the curve."""
    final = result.get("final", {}).get("return")
    if not final:
        return
    made = Estimate.from_json(final)
    error = (
        None
        if made.low is None or made.high is None
        else [[made.value - made.low], [made.high - made.value]]
    )
    steps = np.append(curves.steps, float(result.get("steps", 0)))
    x = [steps.max() + 0.02 * np.ptp(steps)]
    style: dict[str, Any] = {"color": BLACK, "fmt": "D", "ms": 5, "capsize": 4, "zorder": 5}
    axes.errorbar(x, [made.value], error, label=f"final evaluation: {made}", **style)


def _dress(axes: Axes, config: dict[str, Any]) -> None:
    """Labels, and nothing that is not needed."""
    from matplotlib.ticker import EngFormatter

    if config:
        axes.set_title(f"{config['algorithm'].upper()} on {config['environment']}", loc="left")
    axes.set_xlabel("environment steps per seed")
    axes.set_ylabel("return of training episodes")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", lw=0.5, alpha=0.4)
    axes.margins(x=0.02)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize="small")
    else:
        axes.text(0.5, 0.5, "no episode has ended yet", ha="center", transform=axes.transAxes)


def _json(path: Path) -> dict[str, Any]:
    """A JSON file, or nothing where there is none yet."""
    return dict(json.loads(path.read_text())) if path.exists() else {}
