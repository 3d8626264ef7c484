"""How often 95 % intervals of a mean hold it, and how wide they are: ours, t, BCa, percentiles.

    python benchmarks/statistics/intervals.py [--page]

The percentile bootstrap is rliable's interval (``statistics.md``, "The same numbers"). Everything
is drawn with fixed keys; about ten minutes on one core. Writes
benchmarks/results/statistics-intervals.{json,md}; ``--page`` only writes the page anew.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import alone  # noqa: F401 - first of all
import intervals_page
import numpy as np
from scipy.special import ndtr, ndtri
from shapes import SHAPES, Shape

from sterling.statistics import estimate
from sterling.statistics.intervals.mean_intervals import column_intervals

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

SIZES, LEVEL = (2, 3, 5, 10, 20), 0.95
RESAMPLES = 1_000
TASKS, TASK_SIZES = 10, (3, 5, 10)
NOTHING = (None, None)


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    out = ROOT / "benchmarks" / "results" / "statistics-intervals.json"
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--trials", type=int, default=2_000, help="draws of a cell")
    parser.add_argument("--task-trials", type=int, default=400, help="of a cell over tasks")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    options = parser.parse_args()
    if not options.page:
        begun = evidence.begin()
        found = measure(options.trials, options.task_trials)
        evidence.write(options.out, found, begun, "fixed, by shape and number of runs")
    text = intervals_page.markdown(options.out)
    options.out.with_suffix(".md").write_text(text)
    print(text)


def measure(trials: int, task_trials: int) -> dict[str, Any]:
    """Return the coverage and width of every interval, for one task and for ten."""
    results: dict[str, Any] = {
        "level": LEVEL,
        "trials": trials,
        "task_trials": task_trials,
        "resamples": RESAMPLES,
        "one_task": [one_task(shape, n, trials) for shape in SHAPES for n in SIZES],
    }
    results["many_tasks"] = many_tasks(task_trials)
    return results


def one_task(shape: Shape, n: int, trials: int) -> dict[str, Any]:
    """Every interval of one shape and number of runs."""
    rng = np.random.default_rng([n, sum(map(ord, shape.name))])
    scores = shape.draw(rng, (n, trials))
    low, high, _ = column_intervals(scores, NOTHING, LEVEL)
    made = {"undeclared": (low, high)}
    if shape.bounds is not None:
        low, high, taken = column_intervals(scores, shape.bounds, LEVEL)
        made["declared"] = (low, high)
    made |= {"bca": bca(scores), "percentile": percentile(scores)}
    cell: dict[str, Any] = {"shape": shape.name, "n": n, "bounds": shape.bounds}
    cell |= {name: measured(*ends, shape.mean) for name, ends in made.items()}
    if shape.bounds is not None:
        cell["bounded"] = float(taken.mean())  # how often a score lay at a bound
    print(shape.name, n, flush=True)
    return cell


def measured(low: np.ndarray, high: np.ndarray, true: float) -> dict[str, float]:
    """Coverage and mean width; equality counts as held, but for rounding."""
    slack = 1e-9 * max(abs(true), 1.0)
    held = (low <= true + slack) & (true - slack <= high)
    return {"held": float(held.mean()), "width": float((high - low).mean())}


def resampled(scores: np.ndarray) -> np.ndarray:
    """Sorted means of resamples, ``(resample, trial)``."""
    n = len(scores)
    rng = np.random.default_rng([7, n])
    drawn = rng.integers(0, n, (RESAMPLES, n))
    weights = np.stack([np.bincount(row, minlength=n) for row in drawn]) / n
    return np.sort(weights @ scores, axis=0)


def percentile(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Efron's percentile interval, rliable's."""
    low, high = np.quantile(resampled(scores), [0.025, 0.975], axis=0)
    return low, high


def bca(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Efron 1987; as ``statistics/intervals/bootstrap.py``, for many trials at once."""
    found, n = resampled(scores), len(scores)
    middle = scores.mean(0)
    below = ((found < middle).sum(0) + (found == middle).sum(0) / 2) / RESAMPLES
    bias = ndtri(np.clip(below, 0.5 / RESAMPLES, 1 - 0.5 / RESAMPLES))
    pulls = (scores - middle) / (n - 1)  # mean - mean without one
    second, third = (pulls**2).sum(0), (pulls**3).sum(0)
    speed = np.where(second > 0, third / (6 * np.where(second > 0, second, 1) ** 1.5), 0.0)
    ends = []
    for z in (ndtri(0.025), ndtri(0.975)):
        moved = bias + z
        share = ndtr(bias + moved / np.maximum(1 - speed * moved, 1e-9))
        place = np.clip((share * (RESAMPLES - 1)).round().astype(int), 0, RESAMPLES - 1)
        ends.append(np.take_along_axis(found, place[None], 0)[0])
    return ends[0], ends[1]


def many_tasks(trials: int) -> list[dict[str, Any]]:
    """Mean over ten tasks of one shape, default against percentiles."""
    wanted = (0, 1, 6, 7, 9)
    rows = []
    for shape in (SHAPES[at] for at in wanted):
        for n in TASK_SIZES:
            rng = np.random.default_rng([n, 1, sum(map(ord, shape.name))])
            tables = [shape.draw(rng, (n, TASKS)) for _ in range(trials)]
            row: dict[str, Any] = {"shape": shape.name, "n": n}
            hows: dict[str, dict[str, Any]] = {
                "default": {"within": shape.bounds},
                "percentile": {"interval": "bootstrap", "draws": 400},
            }
            for name, how in hows.items():
                made = [estimate(table, key=at, **how) for at, table in enumerate(tables)]
                ends = (
                    np.array([one.value if end is None else end for one, end in each])
                    for each in ([(m, m.low) for m in made], [(m, m.high) for m in made])
                )
                row[name] = measured(*ends, shape.mean)
            rows.append(row)
            print("tasks", shape.name, n, flush=True)
    return rows


if __name__ == "__main__":
    main()
