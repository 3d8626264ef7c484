"""Measure the gain of adapting to a level where the observation does not show the level.

    python benchmarks/adaptation/run.py                # both worlds, some minutes on two cores
    python benchmarks/adaptation/run.py continuous     # one of them: choices, continuous
    python benchmarks/adaptation/run.py --page         # the page from the committed results

Writes benchmarks/results/adaptation.json: each seed's mean return in held-out levels, before and
after adaptation. The best returns in these levels, with one action for all of them and with the
right action in each, are known (``sterling/envs/probes/level_probe.py``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import sterling
from sterling.envs.probes.level_probe import make_level_probe
from sterling.statistics import estimate
from sterling.training.evaluation.evaluate_policy import BEFORE
from sterling.training.evaluation.evaluator import Evaluator

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "adaptation.json"
SEEDS, ENVS, EPISODES, ITERATIONS = 5, 16, 1_000, 300
WORLDS = {"choices": "levels-hidden", "continuous": "levels-hidden-continuous"}
SHARED: dict[str, Any] = {"gamma": 0.8, "gae_lambda": 0.9, "width": 64, "depth": 1, "lr": 5e-3}
SHARED |= {"log_std": -0.5, "normalise_obs": False, "anneal": True}
MAML: dict[str, Any] = SHARED | {"length": 48, "inner_lr": 0.02, "epochs": 5}
PPO = SHARED | {"length": 144, "minibatch": 256, "epochs": 4}
OWN: dict[str, dict[str, Any]] = {
    "levels-hidden": {"inner_lr": 0.5},
    "levels-hidden-continuous": {},
}
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "untrained, 96 steps": ("maml", MAML | {"adapt_length": 96, "lr": 0.0}),
    **{f"maml, {n} steps": ("maml", MAML | {"adapt_length": n}) for n in (24, 96)},
    "maml, 96 steps, first order": ("maml", MAML | {"adapt_length": 96, "first_order": True}),
    "ppo": ("ppo", PPO),
}


def measure_world(world: str) -> dict[str, Any]:
    """Return the results of all arms in one world."""
    own = OWN[world]
    return {name: measure_arm(world, algorithm, fields | (own if algorithm == "maml" else {}))
            for name, (algorithm, fields) in ARMS.items()}  # fmt: skip


def measure_arm(world: str, algorithm: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Train and evaluate one arm; return each seed's mean returns and the best ones."""
    steps = ITERATIONS * ENVS * (fields["length"] + fields.get("adapt_length", 0))
    run = sterling.train(algorithm, f"probe:{world}", steps=steps, envs=ENVS, seeds=SEEDS,
                         preset=False, evaluate_episodes=0, **fields)  # fmt: skip
    found = Evaluator(run.settings, EPISODES)(run.agent)
    best = np.mean([make_level_probe(world).best_returns(levels) for levels in found["begun"]], 0)
    after, before = (found[name].mean(1) for name in ("return", BEFORE if BEFORE in found else
                                                      "return"))  # fmt: skip
    parts = {"before": before, "after": after}
    scores = {name: [float(x) for x in each] for name, each in parts.items()}
    return {
        "algorithm": algorithm,
        "fields": fields,
        "steps": steps,
        "best": {"one action": float(best[0]), "right actions": float(best[1])},
        **{name: {"per_seed": x, **estimate(x).to_json()} for name, x in scores.items()},
    }


PARTS = {name: lambda world=world: measure_world(world) for name, world in WORLDS.items()}


def page() -> list[str]:
    """Return the page of the committed results."""
    parts = json.loads(RESULTS.read_text())["parts"]
    lines = ["# Adapting to levels that are not observed", "", *evidence.lines(RESULTS)]
    lines += [
        f"Mean return in held-out levels, {EPISODES:,} episodes of each of {SEEDS} seeds, with "
        "95 % intervals over seeds, before adaptation and after adaptation to so many steps "
        "of each level, of which one in three pays. "
        f"{ITERATIONS} iterations of {ENVS} levels; settings in "
        "`benchmarks/results/adaptation.json`.", "",
        "| world | | training steps | before | after | best: one action | best: right actions |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for part, arms in parts.items():
        for name, found in arms.items():
            best = found["best"]
            ends = f"{best['one action']:.3f} | {best['right actions']:.3f}"
            cells = f"{cell(found['before'])} | {cell(found['after'])} | {ends}"
            lines.append(f"| `{WORLDS[part]}` | {name} | {found['steps']:,} | {cells} |")
    return [*lines, "", *NOTES.splitlines()]


NOTES = """\
PPO does not adapt: before and after are the same. "Untrained" adapts from MAML's initial
parameters, without training. "One action" is the best return with one action for all levels; a
policy that does not observe the level cannot exceed it. Settings were chosen with the test of the
same worlds.
"""


def cell(score: dict[str, Any]) -> str:
    """Return a mean and its interval."""
    if score["low"] is None:
        return f"{score['value']:.3f} in every seed"
    return f"{score['value']:.3f} [{score['low']:.3f}, {score['high']:.3f}]"


if __name__ == "__main__":
    evidence.measure_parts(RESULTS, PARTS, dict.fromkeys(PARTS, SEEDS), page)
