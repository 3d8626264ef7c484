"""Self-play at tic-tac-toe, judged against a player who makes no mistake.

    python benchmarks/selfplay/run.py        # a few minutes on two cores

Writes benchmarks/results/selfplay.json: of every seed the mean return of its evaluation and how
many games it lost, where no game can be won; and the same of policies that did not learn.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import sterling

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "selfplay.json"
SEEDS, GAMES = range(10, 15), 1_000
STEPS = (50_064, 150_000, 500_000)  # one iteration; enough in a trial of seed 0; more
FIELDS: dict[str, Any] = {
    **{"envs": 16, "collect": 4, "learn": 16, "batch": 128, "lr": 1e-3, "width": 128},
    **{"capacity": 50_000, "target_period": 250, "exploration_fraction": 0.5},
}


def judged(steps: int) -> dict[str, Any]:
    """Train in self-play, and count the games that are lost to the perfect player."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        sterling.train("dqn", "tictactoe:self", steps=steps, seeds=list(SEEDS), out=out,
                       evaluate_episodes=GAMES, **FIELDS)  # fmt: skip
        result = json.loads((out / "result.json").read_text())
    means = np.array(result["final"]["return"]["per_seed"])
    if means.max() > 0.0:
        raise SystemExit("the perfect player was beaten, so it is none")
    return {"steps": steps, "lost": np.rint(-means * GAMES).astype(int).tolist()}


def main() -> None:
    """Write the results."""
    begun = evidence.begin()
    found = {"games": GAMES, "fields": FIELDS, "dqn": [judged(steps) for steps in STEPS]}
    evidence.write(RESULTS, found, begun, list(SEEDS))


if __name__ == "__main__":
    main()
