"""Measure what shifted pictures gain where continuous actions are learned from pixels.

    python benchmarks/pixels/run.py           # all learners, about half an hour on two busy cores
    python benchmarks/pixels/run.py drq-v2    # one of them: drq-v2, sac
    python benchmarks/pixels/run.py --page    # the page from the committed results

Writes benchmarks/results/pixels.json: each seed's return in the world of dot_world.py, with and
without augmentation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import sterling
from sterling.statistics import estimate

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "pixels.json"
WORLD = f"{ROOT / 'benchmarks' / 'pixels' / 'dot_world.py'}:make"
SEEDS, STEPS = 3, 4_000
COMMON = {"batch": 32, "collect": 1, "capacity": 10_000, "warmup": 500, "lr": 1e-3, "gamma": 0.95}
DRQ = COMMON | {"width": 128, "features": 32, "noise_fraction": 0.5}
SAC = COMMON | {"width": 128, "encoder": "drq", "tau": 0.01}
ARMS: dict[str, dict[str, dict[str, Any]]] = {
    "drq-v2": {
        "none": DRQ | {"shift": 0},
        "subpixel-shift:2": DRQ | {"shift": 2},
    },
    "sac": {"none": SAC, "shift:2": SAC | {"augment": "shift:2"}},
}


def measure(algorithm: str) -> dict[str, Any]:
    """Return the results of all arms with one learner."""
    return {name: measure_arm(algorithm, fields) for name, fields in ARMS[algorithm].items()}


def measure_arm(algorithm: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Train one arm; return each seed's mean return over 50 episodes of its last policy."""
    run = sterling.train(algorithm, WORLD, steps=STEPS, seeds=SEEDS, envs=1, preset=False,
                         evaluate_episodes=50, quiet=True, **fields)  # fmt: skip
    scores = run.result["final"]["return"]["per_seed"]
    print(algorithm, fields, scores, flush=True)
    interval = estimate(scores, within=(0.0, 25.0)).to_json()
    return {"fields": fields, "steps": STEPS, "per_seed": scores, **interval}


PARTS = {name: lambda name=name: measure(name) for name in ARMS}


def page() -> list[str]:
    """Return the page of the committed results."""
    parts = json.loads(RESULTS.read_text())["parts"]
    lines = ["# Continuous actions from pixels", "", *evidence.lines(RESULTS)]
    lines += [
        "Returns of the last policy in the world of `benchmarks/pixels/dot_world.py` (a dot is "
        "moved to a target, seen as 24 x 24 bytes; random play gets 6.5, going straight 23.3): the "
        f"mean of {SEEDS} seeds with its 95 % interval, and each seed.", "",
        "| learner | steps | augmentation | return | seeds |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for part, arms in parts.items():
        for name, found in arms.items():
            score = f"{found['value']:.1f} [{found['low']:.1f}, {found['high']:.1f}]"
            seeds = ", ".join(f"{each:.1f}" for each in found["per_seed"])
            lines.append(f"| {part} | {found['steps']:,} | {name} | {score} | {seeds} |")
    return lines


if __name__ == "__main__":
    evidence.measure_parts(RESULTS, PARTS, dict.fromkeys(PARTS, SEEDS), page)
