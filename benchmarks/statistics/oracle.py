"""rliable and adastop as released, in a process of their own.

    python oracle.py '{"job": "speed", ...}'

Runs under a Python that has rliable 1.2, adastop 0.1.3 and pandas < 3. The last line printed is
JSON.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
import warnings
from typing import Any

import alone  # noqa: F401 - first of all
import numpy as np
from laws import draw


def main() -> None:
    """Do what was asked, print what was found."""
    warnings.filterwarnings("ignore")
    request = json.loads(sys.argv[1])
    jobs = {"speed": speed, "agree": agree, "adastop": adastop}
    found = jobs[request["job"]](request)
    versions = {name: importlib.metadata.version(name) for name in ("rliable", "adastop", "numpy")}
    print(json.dumps({"found": found, "versions": versions}))


def _statistic(what: str) -> Any:
    from rliable import metrics

    table = {
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "iqm": metrics.aggregate_iqm,
        "gap": metrics.aggregate_optimality_gap,
    }[what]
    return lambda scores: np.array([table(scores)])


def _interval(scores: np.ndarray, what: str, reps: int) -> tuple[float, float, float]:
    from rliable import library

    points, ends = library.get_interval_estimates({"x": scores}, _statistic(what), reps=reps)
    return float(points["x"][0]), float(ends["x"][0, 0]), float(ends["x"][1, 0])


def speed(request: dict[str, Any]) -> float:
    """Seconds for the IQM's interval of several algorithms."""
    from rliable import library

    rng = np.random.default_rng(0)
    shape = tuple(request["shape"])
    scores = {f"algorithm {i}": rng.normal(size=shape) for i in range(request["algorithms"])}
    start = time.perf_counter()
    library.get_interval_estimates(scores, _statistic("iqm"), reps=request["reps"])
    return time.perf_counter() - start


def agree(request: dict[str, Any]) -> dict[str, Any]:
    """Numbers to compare with ours, from one table of scores."""
    from rliable import library, metrics

    x, y = (np.array(request[name]) for name in ("x", "y"))
    np.random.seed(0)
    made = {what: _interval(x, what, request["reps"]) for what in ("mean", "median", "iqm", "gap")}
    made["improve"] = float(metrics.probability_of_improvement(x, y))
    made["profile"] = [float(library.run_score_deviation(x, tau)) for tau in request["taus"]]
    return made


def adastop(request: dict[str, Any]) -> dict[str, Any]:
    """How often adastop tells equal or shifted algorithms apart, and the runs it takes."""
    from adastop import MultipleAgentsComparator

    n, interims, shift = request["n"], request["interims"], request["shift"]
    names = [f"agent {i}" for i in range(request["count"])]
    seen, used = 0, []
    for trial in range(request["trials"]):
        rng = np.random.default_rng([trial, 7])
        runs = {name: draw(request["law"], rng, (n * interims,)) for name in names}
        runs[names[0]] = runs[names[0]] + shift
        made = MultipleAgentsComparator(
            n=n, K=interims, B=10_000, alpha=request["alpha"], seed=trial
        )
        seen += _differs(made, runs, n, interims)
        used.append(float(np.mean(list(made.n_iters.values()))))
    return {"rejected": seen / request["trials"], "runs": float(np.mean(used))}


def _differs(made: Any, runs: dict[str, np.ndarray], n: int, interims: int) -> bool:
    """Feed interim after interim; it reads only the runs of those it has not decided on."""
    for k in range(interims):
        given = {name: values[: n * (k + 1)] for name, values in runs.items()}
        made.partial_compare(given, verbose=False)
        if made.is_finished:
            break
    return any(said in ("larger", "smaller") for said in made.decisions.values())


if __name__ == "__main__":
    main()
