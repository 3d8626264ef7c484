"""What Sterling's own statistics do on the same simulated scores."""

from __future__ import annotations

import time

import numpy as np
from laws import draw, scores_of, true_value

from sterling.statistics import compare, estimate, power
from sterling.statistics.mean import skew_t, t

Cell = dict[str, float]


def coverage(
    law: str, what: str, shape: tuple[int, int], *, trials: int, interval: str, draws: int = 400
) -> Cell:
    """The share of intervals that hold the true value, and their mean width."""
    true = true_value(law, what)
    if shape[1] == 1 and what == "mean" and interval in ("t", "auto") and "success" not in law:
        many = np.stack([scores_of(law, trial, shape)[:, 0] for trial in range(trials)], axis=1)
        low, high = (t if interval == "t" else skew_t)(many, 0.95)
    else:
        made = [
            estimate(scores_of(law, i, shape), what, interval=interval, draws=draws, key=i)
            for i in range(trials)
        ]
        low, high = (np.array([getattr(one, end) for one in made]) for end in ("low", "high"))
    held = (low <= true) & (true <= high)
    return {"held": float(held.mean()), "width": float((high - low).mean())}


def adastop(request: dict[str, float | int | str], trials: int, draws: int) -> Cell:
    """How often ``compare`` tells equal or shifted algorithms apart, and the runs it takes."""
    n, interims, shift = (request[name] for name in ("n", "interims", "shift"))
    names = [f"agent {i}" for i in range(int(request["count"]))]
    seen, used = 0, []
    for trial in range(trials):
        rng = np.random.default_rng([trial, 7])
        runs = {name: draw(str(request["law"]), rng, (int(n) * int(interims),)) for name in names}
        runs[names[0]] = runs[names[0]] + shift
        made = compare(
            runs,
            alpha=float(request["alpha"]),
            interims=int(interims),
            per_interim=int(n),
            key=trial,
            draws=draws,
        )
        seen += any(one.verdict in ("larger", "smaller") for one in made.decisions)
        used.append(np.mean(list(made.runs.values())))
    return {"rejected": seen / trials, "runs": float(np.mean(used))}


def fixed(shift: float, n: int) -> float:
    """The power of a t test on all runs at once."""
    return power(shift, n)


def speed(shape: tuple[int, int], algorithms: int, reps: int) -> float:
    """Seconds for the IQM's interval of several algorithms."""
    rng = np.random.default_rng(0)
    scores = {f"algorithm {i}": rng.normal(size=shape) for i in range(algorithms)}
    start = time.perf_counter()
    for table in scores.values():
        estimate(table, "iqm", draws=reps)
    return time.perf_counter() - start
