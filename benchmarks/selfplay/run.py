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
# of DQN: one iteration; enough in a trial of seed 0; more. Of PPO: as in a trial; more
STEPS = {"dqn": (50_064, 150_000, 500_000), "ppo": (1_000_000, 3_000_000)}
POOL = "pool:4,10000"
PPO: dict[str, Any] = {"envs": 32, "entropy_coef": 0.1, "normalise_reward": False}
PPO |= {"normalise_obs": False}
DQN: dict[str, Any] = {
    **{"envs": 16, "collect": 4, "learn": 16, "batch": 128, "lr": 1e-3, "width": 128},
    **{"capacity": 50_000, "target_period": 250, "exploration_fraction": 0.5},
}
FIELDS = {"dqn": DQN, "ppo": PPO}


def judged(algorithm: str, steps: int, sources: str) -> dict[str, Any]:
    """Train in self-play, and count the games that are lost to the perfect player."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        sterling.train(algorithm, "tictactoe:self", steps=steps, seeds=list(SEEDS), out=out,
                       evaluate_episodes=GAMES, sources=sources, preset=False,
                       **FIELDS[algorithm])  # fmt: skip
        result = json.loads((out / "result.json").read_text())
    means = np.array(result["final"]["return"]["per_seed"])
    if means.max() > 0.0:
        raise SystemExit("the perfect player was beaten, so it is none")
    lost = np.rint(-means * GAMES).astype(int).tolist()
    return {"algorithm": algorithm, "steps": steps, "sources": sources, "lost": lost}


def main() -> None:
    """Write the results."""
    begun = evidence.begin()
    rows = [judged(name, steps, sources) for name in STEPS for sources in ("", POOL)
            for steps in STEPS[name]]  # fmt: skip
    found = {"games": GAMES, "fields": FIELDS, "rows": rows}
    evidence.write(RESULTS, found, begun, list(SEEDS))


if __name__ == "__main__":
    main()
