"""Measure what bonuses for new observations gain where rewards are rare.

    python benchmarks/exploration/run.py           # both learners, some minutes on two cores
    python benchmarks/exploration/run.py dqn       # one of them: ppo, dqn
    python benchmarks/exploration/run.py --page    # the page from the committed results

Writes benchmarks/results/exploration.json: each seed's return in a corridor that random actions do
not cross, without a bonus and with each.
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

RESULTS = ROOT / "benchmarks" / "results" / "exploration.json"
SEEDS, CELLS = 5, 30
ARMS = ("", "counts", "disagreement", "icm", "rnd")
PPO = {"envs": 8, "length": 64, "minibatch": 128, "epochs": 4, "entropy_coef": 0.01}
DQN = {"envs": 8, "lr": 1e-3, "batch": 128, "collect": 8, "learn": 8, "capacity": 50_000}
DQN |= {"warmup": 1_000, "target_period": 200, "exploration_final": 0.02, "width": 64, "n_step": 3}
LEARNERS: dict[str, tuple[int, dict[str, Any]]] = {"ppo": (300_000, PPO), "dqn": (100_000, DQN)}


def measure(algorithm: str) -> dict[str, Any]:
    """Return the results of all arms with one learner."""
    steps, fields = LEARNERS[algorithm]
    return {arm or "none": measure_arm(algorithm, steps, fields, arm) for arm in ARMS}


def measure_arm(algorithm: str, steps: int, fields: dict[str, Any], arm: str) -> dict[str, Any]:
    """Train one arm; return each seed's mean return over 20 episodes of its last policy."""
    run = sterling.train(algorithm, f"corridor:{CELLS}", steps=steps, seeds=SEEDS, sources=arm,
                         preset=False, evaluate_episodes=20, quiet=True, **fields)  # fmt: skip
    scores = run.result["final"]["return"]["per_seed"]
    interval = estimate(scores, within=(0.0, 1.0)).to_json()
    return {"fields": fields, "steps": steps, "per_seed": scores, **interval}


PARTS = {name: lambda name=name: measure(name) for name in LEARNERS}


def page() -> list[str]:
    """Return the page of the committed results."""
    parts = json.loads(RESULTS.read_text())["parts"]
    lines = ["# Bonuses for new observations", "", *evidence.lines(RESULTS)]
    lines += [
        f"Returns of the last policy in `corridor:{CELLS}`, where only the end pays (1) and random "
        f"actions cross once in 2^{CELLS} tries: the mean of {SEEDS} seeds with its 95 % interval "
        "(returns are within 0 and 1), and how many seeds cross. Weights are the defaults of "
        "`--sources`.", "",
        "| learner | steps | bonus | return | seeds that cross |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for part, arms in parts.items():
        for name, found in arms.items():
            score = f"{found['value']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"
            crossed = sum(each > 0.5 for each in found["per_seed"])
            row = f"| {part} | {found['steps']:,} | {name} | {score} | {crossed} of {SEEDS} |"
            lines.append(row)
    return lines


if __name__ == "__main__":
    evidence.measure_parts(RESULTS, PARTS, dict.fromkeys(PARTS, SEEDS), page)
