"""Train CEM-RL beside its two parents, TD3 and evolution alone, for equally many steps.

    python benchmarks/openes/cem_rl.py        # about ten minutes on two cores

Writes benchmarks/results/cem-rl.json. All three learn policies of two layers of 64 units. OpenES
counts planned steps, which on Pendulum are those that it takes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import sterling
from sterling.statistics import estimate

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "cem-rl.json"
WORLD, STEPS, SEEDS, EPISODES = "Pendulum-v1", 40_000, (10, 11, 12), 50
FIELDS: dict[str, dict[str, Any]] = {
    "cem-rl": {"limit": 200, "warmup": 4_000, "width": 64},
    "td3": {},  # the preset of this world
    "openes": {"envs": 20, "limit": 200, "width": 64, "noise": 0.1, "lr": 0.02},
}


def trained(name: str) -> dict[str, Any]:
    """Return what one learner reached."""
    how: Any = {"steps": STEPS, "seeds": SEEDS, "evaluate_episodes": EPISODES, **FIELDS[name]}
    run = sterling.train(name, WORLD, **how)
    scores = run.result["final"]["return"]["per_seed"]
    found = {"per_seed": scores, **estimate(scores).to_json()}
    return {"fields": FIELDS[name], "return": found, "seconds": run.result["wall_seconds"]}


def main() -> None:
    """Train every learner, and write what was found."""
    for name in sys.argv[1:] or FIELDS:
        begun, found = evidence.begin(), trained(name)
        evidence.write_part(RESULTS, name, found, begun, list(SEEDS))


if __name__ == "__main__":
    main()
