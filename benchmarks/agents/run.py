"""Train independent PPO on worlds of three agents: a native one whose best return is known, and one
of PettingZoo's.

    python benchmarks/agents/run.py own       # or team: minutes each, on two cores
    python benchmarks/agents/run.py mpe2      # needs the extra pettingzoo

Writes benchmarks/results/agents_NAME.json: of each seed the mean return over the last tenth of the
rows of its log, as the policy samples, and over 500 episodes of its mode, with intervals, the
team's and each agent's; what chance comes to; and of the native world the best expected return.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import sterling
from sterling import envs
from sterling.envs.native.spread_landmarks import make
from sterling.experience.rollouts.random_actions import RandomActor
from sterling.statistics import estimate
from sterling.training.evaluation.evaluate_policy import evaluate

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
EPISODES = 500
SHARED = {"normalise_reward": True, "preset": False, "epochs": 4, "entropy_coef": 0.01}
GRID = "3-agents-3x3"
SPREAD = {
    **SHARED,
    **{"environment": f"spread:{GRID}", "steps": 600_000, "seeds": 5, "envs": 64, "length": 32},
    **{"minibatch": 1_024, "lr": 1e-3, "gamma": 0.95, "normalise_obs": False},
}
MPE2 = {
    **SHARED,
    **{"environment": "pettingzoo:mpe2/simple_spread_v3", "steps": 32_000, "seeds": 3},
    **{"envs": 32, "length": 25, "minibatch": 600, "epochs": 8, "lr": 7e-4, "gamma": 0.9},
    **{"reward": "team"},
}
RUNS = {"own": {**SPREAD, "reward": "own"}, "team": {**SPREAD, "reward": "team"}, "mpe2": MPE2}


def trained(settings: dict[str, Any], algorithm: str = "ippo") -> dict[str, Any]:
    """Return what the newest tenth of the rows of each seed's log says, and what modes come to."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = sterling.train(algorithm, **settings, out=out, evaluate_episodes=0)
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        final = run.evaluate(EPISODES)
    late = rows[-max(1, len(rows) // 10) :]
    found: dict[str, Any] = {}
    for name in (each for each in final if each != "unended"):
        sampled = np.mean([row[f"data/{name}"] for row in late], 0)
        modes = [float(x) for x in final[name]["per_seed"]]
        found[name] = {"sampled": counted(sampled), "mode": counted(np.array(modes))}
    return {**found, "modes unended": final["unended"]}


def counted(per_seed: np.ndarray) -> dict[str, Any]:
    """Return each seed's number and their mean with its interval."""
    return {"per_seed": per_seed.tolist(), **estimate(per_seed.tolist()).to_json()}


def by_chance(environment: str, count: int) -> dict[str, Any]:
    """Return what random actions come to, of so many seeds."""
    world = envs.make(environment, tuple(range(count)), 50, purpose="evaluate")
    try:
        seeds = jnp.arange(count, dtype=jnp.int32)
        found = evaluate(RandomActor(None, world), world, seeds, EPISODES)
    finally:
        world.close()
    return counted(found["return"].mean(1))


def main(name: str) -> None:
    """Write the results of one run."""
    begun, settings = evidence.begin(), RUNS[name]
    found: dict[str, Any] = {"settings": settings}
    if name != "mpe2":
        found["best"] = make(GRID)[0].best_on_average()
    found["chance"] = by_chance(settings["environment"], settings["seeds"])
    found["ippo"] = trained(settings)
    path = RESULTS / f"agents_{name}.json"
    evidence.write(path, found, begun, list(range(settings["seeds"])))


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in RUNS]:
        sys.exit(f"say which: {', '.join(RUNS)}")
    main(sys.argv[1])
