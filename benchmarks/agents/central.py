"""Train independent PPO and PPO with a central critic on one world of three agents, whose state is
for critics alone and whose best return is known.

    python benchmarks/agents/central.py

Writes benchmarks/results/central_critic.json: of each algorithm and seed the mean return over the
last tenth of the rows of its log, as the policy samples, and over 500 episodes of its mode, with
intervals; what chance comes to; the best expected return; the difference between the two.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402
from benchmarks.agents import run as grid  # noqa: E402
from sterling.envs.native.spread_landmarks import make  # noqa: E402

GRID = "3-agents-3x3-state"
SETTINGS: dict[str, Any] = {
    **grid.SPREAD,
    **{"environment": f"spread:{GRID}", "steps": 400_000, "reward": "team"},
}
ALGORITHMS = ("ippo", "mappo")


def beside(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the mean difference mappo - ippo over seeds, which meet the same episodes, with its
    interval."""
    ippo, mappo = (np.array(found[name]["return"][kind]["per_seed"]) for name in ALGORITHMS)
    return grid.counted(mappo - ippo)


def main() -> None:
    """Write the results."""
    begun = evidence.begin()
    found: dict[str, Any] = {"settings": SETTINGS, "best": make(GRID)[0].best_on_average()}
    found["chance"] = grid.by_chance(SETTINGS["environment"], SETTINGS["seeds"])
    for name in ALGORITHMS:
        found[name] = grid.trained(SETTINGS, name)
    found["mappo - ippo"] = {kind: beside(found, kind) for kind in ("sampled", "mode")}
    path = grid.RESULTS / "central_critic.json"
    evidence.write(path, found, begun, list(range(SETTINGS["seeds"])))


if __name__ == "__main__":
    main()
