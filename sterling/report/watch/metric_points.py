"""Points of a metric over training: every seed, their mean, and its interval."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from sterling import statistics
from sterling.statistics.scores.run_folder_scores import row_progress
from sterling.statistics.scores.score_bounds import Bounds

Row = dict[str, Any]


def column_points(
    rows: list[Row], column: str, after: int, seeds: list[int], within: Bounds | None
) -> dict[str, Any]:
    """Return the points of a column: ``x`` (steps or updates), ``seconds``, ``seeds`` (a list per
    seed), ``mean``, ``low`` and ``high``, from row ``after`` on.

    In the mean a seed without a value in a row counts as in ``curve.png``: on the line between its
    values before and after the row; after its latest value, as that one. Seeds that have failed are
    left out. There is no mean before every seed has a value. ``kept``: the number of points before
    row ``after``; ``changes_from``: later rows of the log may change the mean from this row on.
    ``seeds``: the run's seeds. ``within``: bounds of the values, if known.
    """
    values, places = _column_values(rows, column)
    new = places >= after
    alive = ~_failed_seeds(rows, places, values.shape[0], seeds)
    known = np.where(alive, values, np.nan)
    x = np.array([math.nan if (at := _place(rows[row])) is None else at for row in places])
    mean, low, high = _intervals(_interpolated(x, known)[:, new], alive[:, new], within)
    return {
        "kept": int((~new).sum()),
        "changes_from": _first_changing_row(known, alive, places),
        "x": [_place(rows[at]) for at in places[new]],
        "seconds": [rows[at].get("time/seconds") for at in places[new]],
        "seeds": [_plain(row) for row in known[:, new]],
        "mean": _plain(mean),
        "low": _plain(low),
        "high": _plain(high),
    }


def latest_values(rows: list[Row], column: str, seeds: list[int]) -> tuple[list[float], int | None]:
    """Return the latest value of every seed that has one and did not fail, and the place (steps or
    updates) of the newest of them; None if there are none."""
    last = rows[-1].get("failed") if rows else None
    failed = set(last) if isinstance(last, list) else set()
    latest: dict[int, float] = {}
    newest = None
    for row in reversed(rows):
        values = row.get(column)
        for at, value in enumerate(values) if isinstance(values, list) else ():
            seed = seeds[at] if at < len(seeds) else at
            if math.isfinite(_number(value)) and seed not in failed and at not in latest:
                latest[at], newest = _number(value), newest or row
        if len(latest) >= len(seeds) - len(failed) and newest is not None:
            break
    return [latest[at] for at in sorted(latest)], None if newest is None else _place(newest)


def _intervals(
    held: Float[np.ndarray, "seed row"], alive: Bool[np.ndarray, "seed row"], within: Bounds | None
) -> tuple[Float[np.ndarray, "row"], ...]:
    """Return mean, low and high; NaN where they are not known. Rows in which the same seeds are
    alive are computed together."""
    mean, low, high = (np.full(held.shape[1], np.nan) for _ in range(3))
    known = (np.isfinite(held) | ~alive).all(0) & alive.any(0)
    for group in {tuple(column) for column in alive[:, known].T}:
        chosen = np.array(group)
        where = known & (alive == chosen[:, None]).all(0)
        values = held[chosen][:, where]
        mean[where] = values.mean(0)
        made = statistics.curve(values, within=within) if len(values) > 1 else None
        if made is not None and made.low is not None and made.high is not None:
            low[where], high[where] = made.low, made.high
    return mean, low, high


def _failed_seeds(
    rows: list[Row], places: Int[np.ndarray, "row"], count: int, seeds: list[int]
) -> Bool[np.ndarray, "seed row"]:
    """Return which seeds had failed in each row."""
    numbers = seeds if len(seeds) == count else list(range(count))
    failed = np.zeros((count, len(places)), bool)
    for index, at in enumerate(places):
        named = rows[at].get("failed")
        for seed in named if isinstance(named, list) else []:
            if seed in numbers:
                failed[numbers.index(seed), index] = True
    return failed


def _column_values(rows: list[dict[str, Any]], column: str) -> tuple[Any, Any]:
    """Return a column as ``(seed, row)`` with NaN for None, and the rows that have it."""
    places = [at for at, row in enumerate(rows) if _is_number_or_list(row.get(column))]
    lists = [rows[at][column] if isinstance(rows[at][column], list) else [rows[at][column]]
             for at in places]  # fmt: skip
    seeds = max(map(len, lists), default=0)
    whole = [(at, own) for at, own in zip(places, lists, strict=True) if len(own) == seeds]
    values = np.array([[_number(x) for x in own] for _, own in whole], np.float64)
    return values.reshape(len(whole), seeds).T, np.array([at for at, _ in whole], np.int64)


def _is_number_or_list(value: Any) -> bool:
    return isinstance(value, list) or type(value) in (int, float)


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) else math.nan


def _interpolated(
    x: Float[np.ndarray, "row"], values: Float[np.ndarray, "seed row"]
) -> Float[np.ndarray, "seed row"]:
    """Return the values with each NaN on the line between the seed's values around it; after its
    last value, as that one. Rows count as equally far apart where ``x`` does not rise with them."""
    made = values.copy()
    x = x if (np.diff(x) > 0).all() else np.arange(x.size, dtype=np.float64)
    for seed, own in enumerate(values):
        known = np.isfinite(own)
        if known.any():
            made[seed] = np.interp(x, x[known], own[known], left=np.nan)
    return made


def _first_changing_row(
    known: Float[np.ndarray, "seed row"],
    alive: Bool[np.ndarray, "seed row"],
    places: Int[np.ndarray, "row"],
) -> int:
    """Return the row after the last one in which each seed has a value now or later."""
    here = np.isfinite(known)
    lasts = [places[own][-1] if own.any() else -1 for own in here[alive[:, -1:].any(1)]]
    return int(min(lasts, default=-1)) + 1


def _place(row: dict[str, Any]) -> int | None:
    try:
        return row_progress(row)
    except (KeyError, TypeError, ValueError):
        return None


def _plain(values: Float[np.ndarray, "row"]) -> list[float | None]:
    """Return numbers with six digits, None for what is not finite."""
    return [float(f"{x:.6g}") if math.isfinite(x) else None for x in values.tolist()]
