"""Train OpenES on two worlds: the return of the learned mean, and the steps that it was learned in.

    python benchmarks/openes/run.py        # a minute for each world on one core; or name one

Writes benchmarks/results/openes.json. Budgets count planned steps, ``limit`` of every env in an
iteration; beside them stand those that were lived.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import sterling
from sterling.statistics import estimate

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "openes.json"
SEEDS, ENVS, EPISODES = 5, 64, 100
ROWS = 20  # of each run's log
TASKS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"iterations": 60, "limit": 500, "width": 32},
    "Pendulum-v1": {
        **{"iterations": 800, "limit": 200, "width": 16},
        **{"noise": 0.1, "lr": 0.02, "weight_decay": 0.0},
    },
}


def trained(environment: str, iterations: int, **fields: Any) -> dict[str, Any]:
    """Return what was learned in so many iterations, and what was lived in them."""
    steps = iterations * ENVS * fields["limit"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        how = {"seeds": SEEDS, "envs": ENVS, "out": out, "evaluate_episodes": EPISODES}
        how |= {"steps": steps, "log_every": steps // ROWS}
        run = sterling.train("openes", environment, **how, **fields)
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    each = iterations // ROWS
    lived = [each * sum(row["population/steps"][seed] for row in rows) for seed in range(SEEDS)]
    scores = run.result["final"]["return"]["per_seed"]
    return {
        "fields": {"envs": ENVS, **fields},
        "planned": steps,
        "lived": {"per_seed": lived, **estimate(lived).to_json()},
        "return": {"per_seed": scores, **estimate(scores).to_json()},
        "log": {"step": [row["step"] for row in rows],
                "return": [row["data/return"] for row in rows]},
        "seconds": run.result["wall_seconds"],
    }  # fmt: skip


def main() -> None:
    """Write the results of the worlds that are named, or of all."""
    for environment in sys.argv[1:] or TASKS:
        begun, found = evidence.begin(), trained(environment, **TASKS[environment])
        evidence.write_part(RESULTS, environment, found, begun, list(range(SEEDS)))


if __name__ == "__main__":
    main()
