"""Measure what hindsight does: DQN flips bits, SAC reaches, each with and without it.

    python benchmarks/goals/run.py             # all parts, some twenty minutes on two cores
    python benchmarks/goals/run.py flip        # one of them
    python benchmarks/goals/run.py --page      # the page from the committed results

Writes benchmarks/results/goals.json: of each seed's final policy, by its mode, how often it reached
what was wanted, and its mean return.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import sterling
from sterling.envs.native.bit_flip import make

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "goals.json"
EPISODES = 100  # of each final policy
DQN = {
    **{"envs": 8, "width": 128, "depth": 1, "lr": 1e-3, "batch": 64, "warmup": 1_000, "collect": 1},
    **{"capacity": 100_000, "gamma": 0.98, "tau": 0.05, "target_period": 1},
    **{"exploration_fraction": 0.3, "exploration_final": 0.1},
}
SAC = {
    **{"envs": 1, "width": 64, "depth": 2, "lr": 1e-3, "batch": 256, "warmup": 1_000},
    **{"capacity": 20_000, "gamma": 0.95, "tau": 0.05, "alpha": 0.1},
}
PARTS: dict[str, dict[str, Any]] = {
    "flip": {"algorithm": "dqn", "world": "flip:15", "steps": 40_000, "seeds": 5, "fields": DQN},
    "reach": {
        "algorithm": "sac",
        "world": "FetchReach-v4",
        "steps": 20_000,
        "seeds": 3,
        "fields": SAC,
    },
}
ARMS = {"with hindsight": "future", "without": ""}


def measured(part: dict[str, Any], hindsight: str) -> dict[str, Any]:
    """Return how the final policies of an arm do, with intervals over seeds."""
    run = sterling.train(part["algorithm"], part["world"], steps=part["steps"], seeds=part["seeds"],
                         hindsight=hindsight, evaluate_episodes=EPISODES, preset=False,
                         **part["fields"])  # fmt: skip
    final = run.result["final"]
    success = next(name for name in ("success", "is_success") if name in final)
    return {"hindsight": hindsight, "success": final[success], "return": final["return"]}


def beside(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part with the results of both arms."""
    arms = {arm: measured(part, hindsight) for arm, hindsight in ARMS.items()}
    return {**part, "arms": arms}


def page() -> list[str]:
    """Return the page of the committed results."""
    content = json.loads(RESULTS.read_text())
    lines = ["# What hindsight does", "", *evidence.lines(RESULTS)]
    for name, text in ABOUT.items():
        if name not in content["parts"]:
            continue
        part = content["parts"][name]
        lines += [
            f"## {part['algorithm']} on {part['world']}, {part['steps']:,} steps", "",
            f"{part['seeds']} seeds; {OF_ALL} {text}", "",
            "| | success | each seed's | return |", "|---|---|---|---|",
        ]  # fmt: skip
        for arm, found in part["arms"].items():
            each = ", ".join(f"{score:.2f}" for score in found["success"]["per_seed"])
            cells = (cell(found["success"]), each, cell(found["return"]))
            lines.append(f"| {arm} | {' | '.join(cells)} |")
        lines.append("")
    return [*lines, *NOTES.splitlines()]


def cell(score: dict[str, Any]) -> str:
    """Return a mean and its interval, where there is one."""
    made = f"{score['estimate']:.3g}"
    return made if score.get("low") is None else f"{made} [{score['low']:.3g}, {score['high']:.3g}]"


OF_ALL = (
    f"of each the final policy by its mode, {EPISODES} episodes. Means with 95 % intervals over "
    "seeds."
)
ABOUT = {
    "flip": (
        "Success: the bits are as wanted before the episode is cut after 15 steps. The best return "
        f"is {make('15')[0].best:.3f} on average, that of never succeeding -15."
    ),
    "reach": (
        "Success: in the last of 50 steps the hand is within 5 cm of where it is wanted. Published "
        "for hindsight on an earlier version of this task, by another learner (TQC, in the "
        "benchmark of RL Baselines3 Zoo): a return of -1.66 +- 0.87 after 20,000 steps."
    ),
}
NOTES = """\
**What falls short.** Settings were chosen at another seed, 100: those of DQN are the first that
were tried on 15 bits; those of SAC the second, after 5,000 steps with a slower target network (tau
0.005) and a temperature of 1 at the start had taught nothing. There was no search of settings for
the arms without hindsight.

Reaching was first given 10,000 steps, half of the published budget, with the same seeds: success
was 0.06, 0.98 and 0.80 with hindsight and 0.21, 0.04 and 0.00 without. With three seeds the
intervals of both arms overlap in 20,000 steps too. It is the easiest task of its family; pushing,
sliding and lifting take a hundred times as many steps and were not tried.
"""


if __name__ == "__main__":
    parts = {name: functools.partial(beside, part) for name, part in PARTS.items()}
    seeds = {name: part["seeds"] for name, part in PARTS.items()}
    evidence.measure_parts(RESULTS, parts, seeds, page)
