"""Train PPO, and PPO and SAC under a limit, on a grid with hazards, beside the best it allows.

    python benchmarks/constraint/run.py        # some fifteen minutes on two cores
    python benchmarks/constraint/run.py sac    # one of the two: ppo, sac

Writes benchmarks/results/constraint.json and constraint-sac.json: each seed's mean return and cost
over the last tenth of the rows of its log, as the policy samples, with intervals; and the linear
program's answer.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import sterling
from sterling.envs.native.hazard_grid import make
from sterling.statistics import estimate

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
GRID, STEPS, SEEDS = "3x6", 300_000, 5
LIMITS = (0.15, 2.0)
PPO = {
    **{"envs": 16, "gamma": 1.0, "length": 64, "minibatch": 256, "epochs": 4, "lr": 1e-3},
    **{"normalise_obs": False, "normalise_reward": False, "preset": False},
}
SAC = {
    **{"envs": 16, "gamma": 1.0, "collect": 4, "learn": 2, "batch": 128, "lr": 1e-3, "width": 64},
    **{"capacity": 50_000, "warmup": 2_000, "tau": 0.01, "alpha": 0.01, "tune_alpha": False},
    **{"preset": False},
}


def trained(algorithm: str, shared: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return what the newest tenth of the rows of each seed's log says."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        sterling.train(algorithm, f"hazards:{GRID}", steps=STEPS, seeds=SEEDS, out=out,
                       evaluate_episodes=0, **shared, **fields)  # fmt: skip
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    late = rows[-max(1, len(rows) // 10) :]
    found: dict[str, Any] = {"fields": fields}
    for name in ("return", "cost"):
        per_seed = np.mean([row[f"data/{name}"] for row in late], 0)
        found[name] = {"per_seed": per_seed.tolist(), **estimate(per_seed.tolist()).to_json()}
    return found


def ppo() -> dict[str, Any]:
    """PPO, and PPO-Lagrangian under each limit."""
    grid = make(GRID)[0]
    found: dict[str, Any] = {"free": {"best": grid.best(1e3), "ppo": trained("ppo", PPO)}}
    for limit in LIMITS:
        run = trained("ppo-lagrangian", PPO, cost_limit=limit, multiplier_lr=0.02)
        found[f"limit {limit:g}"] = {"best": grid.best(limit), "ppo-lagrangian": run}
    return found


def sac() -> dict[str, Any]:
    """SAC-Lagrangian under each limit."""
    grid, found = make(GRID)[0], {}
    for limit in LIMITS:
        run = trained("sac-lagrangian", SAC, cost_limit=limit, multiplier_lr=5e-4)
        found[f"limit {limit:g}"] = {"best": grid.best(limit), "sac-lagrangian": run}
    return found


PARTS = {"ppo": (ppo, PPO, "constraint.json"), "sac": (sac, SAC, "constraint-sac.json")}


def main() -> None:
    """Write the results that were asked for."""
    begun = evidence.begin()
    for name in sys.argv[1:] or PARTS:
        part, fields, file = PARTS[name]
        found = {"grid": GRID, "steps": STEPS, "seeds": SEEDS, "fields": fields, **part()}
        evidence.write(RESULTS / file, found, begun, list(range(SEEDS)))


if __name__ == "__main__":
    main()
