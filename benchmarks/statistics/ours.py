"""What Sterling's own statistics do on the same simulated scores."""

from __future__ import annotations

import time

import numpy as np
from laws import draw

from sterling.statistics import compare, estimate, power

Cell = dict[str, float]


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
