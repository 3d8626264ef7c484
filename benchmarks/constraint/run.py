"""Train PPO-Lagrangian and PPO on a grid with hazards, beside the best that the limit allows.

    python benchmarks/constraint/run.py        # a few minutes on two cores

Writes benchmarks/results/constraint.json: each seed's mean return and cost over the last tenth of
the rows of its log, as the policy samples, with intervals; and the linear program's answer.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import sterling
from sterling.envs.hazards import make
from sterling.statistics import estimate

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "constraint.json"
GRID, STEPS, SEEDS = "3x6", 300_000, 5
LIMITS = (0.15, 2.0)
FIELDS = {
    **{"envs": 16, "gamma": 1.0, "length": 64, "minibatch": 256, "epochs": 4, "lr": 1e-3},
    **{"normalise_obs": False, "normalise_reward": False, "preset": False},
}


def trained(algorithm: str, **fields: Any) -> dict[str, Any]:
    """Return what the newest tenth of the rows of each seed's log says."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        sterling.train(algorithm, f"hazards:{GRID}", steps=STEPS, seeds=SEEDS, out=out,
                       evaluate_episodes=0, **FIELDS, **fields)  # fmt: skip
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    late = rows[-max(1, len(rows) // 10) :]
    found: dict[str, Any] = {"fields": fields}
    for name in ("return", "cost"):
        per_seed = np.mean([row[f"data/{name}"] for row in late], 0)
        found[name] = {"per_seed": per_seed.tolist(), **estimate(per_seed.tolist()).to_json()}
    return found


def main() -> None:
    """Write the results."""
    begun, grid = evidence.begin(), make(GRID)[0]
    found: dict[str, Any] = {"grid": GRID, "steps": STEPS, "seeds": SEEDS, "fields": FIELDS}
    found["free"] = {"best": grid.best(1e3), "ppo": trained("ppo")}
    for limit in LIMITS:
        run = trained("ppo-lagrangian", cost_limit=limit, multiplier_lr=0.02)
        found[f"limit {limit:g}"] = {"best": grid.best(limit), "ppo-lagrangian": run}
    evidence.write(RESULTS, found, begun, list(range(SEEDS)))


if __name__ == "__main__":
    main()
