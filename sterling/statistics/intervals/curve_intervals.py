"""Learning curves, in which a run is always kept as one whole curve.

Two different things are drawn around a curve: how much *runs* differ (a percentile band of the runs
themselves) and how well their *mean* is known (an interval). The points of one run belong together,
so what combines them, such as the area under the curve, is computed for each run first and only
then over runs. Resampling cells of (run, time) one by one instead, as is done elsewhere, makes the
interval of a time-average many times too narrow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling.statistics.intervals import mean_intervals as means
from sterling.statistics.intervals.aggregates import Aggregate
from sterling.statistics.intervals.estimates import Estimate, check_confidence_level, estimate
from sterling.statistics.scores import score_bounds
from sterling.statistics.scores.score_bounds import BoundsLike
from sterling.statistics.scores.score_table import FailedRule, Scores
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Curve:
    """Curves of several runs, their median and mean, and two kinds of band."""

    steps: Float[np.ndarray, "time"]
    runs: Float[np.ndarray, "run time"]
    median: Float[np.ndarray, "time"]
    band_low: Float[np.ndarray, "time"]  # percentile band that holds the share ``band`` of the runs
    band_high: Float[np.ndarray, "time"]
    band: float
    mean: Float[np.ndarray, "time"]
    low: Float[np.ndarray, "time"] | None  # pointwise interval of the mean; None for one run
    high: Float[np.ndarray, "time"] | None
    n: int
    method: str
    level: float


def curve(
    values: Sequence[Any] | np.ndarray,
    steps: Sequence[float | int] | np.ndarray | None = None,
    *,
    level: float = 0.95,
    band: float = 0.8,
    failed: FailedRule = None,
    within: BoundsLike = None,
) -> Curve:
    """Return median, percentile band and mean with interval over the runs of ``(run, time)``
    values.

    ``steps`` default to 0, 1, 2, ... ``band``: the share of runs between the band's ends; 1 is from
    the lowest to the highest run. A run with NaN at any time has failed: see ``failed`` in
    ``score_table.py``; a number replaces the values from the NaN on, "exclude" drops the whole run.
    ``within``: the declared bounds of the values, as in ``estimate``. The interval's ends are NaN
    where all runs are equal and not both bounds are declared.
    """
    check_confidence_level(level)
    if not 0.0 < band <= 1.0:
        raise Mistake(f"band must be a share of the runs in (0, 1]; got {band}")
    runs, at, note = _finite_curves(
        values, steps, score_bounds.resolve_failed_score(failed, within)
    )
    bounds, dropped = score_bounds.drop_violated_bounds(
        runs.ravel(), score_bounds.parse_bounds(within)
    )
    note = "; ".join(part for part in (note, dropped) if part)
    low = high = None
    method = "none (one run)"
    if len(runs) > 1:
        low, high, is_bounded = means.column_intervals(runs, bounds, level)
        unknown = (np.ptp(runs, axis=0) == 0.0) & (None in bounds)
        low, high = (np.where(unknown, np.nan, end) for end in (low, high))
        method = "bounded or t, by column" if is_bounded.any() else "t"
    ends = np.quantile(runs, [0.5 - band / 2.0, 0.5 + band / 2.0], axis=0)
    return Curve(
        at, runs, np.median(runs, axis=0), ends[0], ends[1], band, runs.mean(0), low, high,
        len(runs), f"{method}; {note}" if note else method, level,
    )  # fmt: skip


def auc(
    values: Sequence[Any] | np.ndarray | Scores,
    steps: Sequence[float | int] | np.ndarray | None = None,
    what: str | Callable[..., Any] | Aggregate = "mean",
    *,
    level: float = 0.95,
    key: int = 0,
    interval: str = "auto",
    failed: FailedRule = None,
    within: BoundsLike = None,
) -> Estimate:
    """Estimate the area under ``(run, time)`` or ``(run, task, time)`` curves, as a time-average.

        (sum of trapezoids) / (last step - first step)

    in the unit of the values, then ``estimate`` over whole runs. ``failed`` applies to a run whose
    curve holds NaN. A single point of time is its own average. ``within``: as in ``estimate``.
    """
    if isinstance(values, Scores):
        scores, steps = values, values.steps if steps is None else steps
    else:
        whole = np.asarray(values, np.float64)
        whole = whole[:, None, :] if whole.ndim == 2 else whole
        if whole.ndim != 3:
            raise Mistake(f"auc needs (run, time) or (run, task, time); got shape {whole.shape}")
        scores = Scores.from_values(whole)
    if scores.values.ndim != 3:
        raise Mistake("these scores have no time axis; load them with what='curve'")
    area = _time_average(scores.values, as_rising_steps(steps, scores.values.shape[-1]))
    flat = dataclasses.replace(scores, values=area, steps=None)
    return estimate(
        flat, what, level=level, key=key, interval=interval, failed=failed, within=within
    )


def as_rising_steps(
    steps: Sequence[float | int] | np.ndarray | None, count: int
) -> Float[np.ndarray, "time"]:
    """Return ascending steps, one per point of time; 0, 1, 2, ... by default."""
    at = np.arange(count, dtype=np.float64) if steps is None else np.asarray(steps, np.float64)
    if at.shape != (count,):
        raise Mistake(f"a curve of {count} points needs {count} steps; got shape {at.shape}")
    if not (np.diff(at) > 0).all():
        raise Mistake("the steps of a curve must ascend; sort them and drop duplicates")
    return at


def _time_average(
    values: Float[np.ndarray, "*rest time"], at: Float[np.ndarray, "time"]
) -> Float[np.ndarray, "*rest"]:
    if at.size == 1:
        return values[..., 0]
    return np.trapezoid(values, at, axis=-1) / (at[-1] - at[0])


def _finite_curves(
    values: Sequence[Any] | np.ndarray,
    steps: Sequence[float | int] | np.ndarray | None,
    failed: FailedRule,
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return whole finite curves, their steps, and a note about failed runs."""
    runs = np.array(values, np.float64)
    if runs.ndim != 2 or runs.size == 0:
        raise Mistake(f"a curve needs (run, time) values; got an array of shape {runs.shape}")
    at, not_finite = as_rising_steps(steps, runs.shape[1]), ~np.isfinite(runs)
    failed_runs = not_finite.any(1)
    if not failed_runs.any():
        return runs, at, ""
    failures = f"{int(failed_runs.sum())} of {len(runs)} failed"
    if failed is None:
        raise Mistake(f"{failures}: NaN in their curves; use failed=<number> or failed='exclude'")
    if failed == "exclude":
        if failed_runs.all():
            raise Mistake(f"{failures}: no run is left to draw; use failed=<number>")
        return runs[~failed_runs], at, f"{failures}, excluded"
    runs[not_finite] = float(failed)
    return runs, at, f"{failures}, counted as {float(failed):g}"
