"""GCIQL (Kostrikov 2022 with goals; the policy climbs Q and imitates)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.goals.gcbc import asked, log_prob
from oracles.goals.gcivl import pair
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn value, critics and policy, all from the state before the update."""
    act, action = config["activation"], batch["action"]
    seen, far = (asked(batch["obs"], batch[name]) for name in ("goal", "policy_goal"))
    best = pair(state, ".target", np.concatenate([seen, action], -1), config).min(0)
    later = perceptron(state, ".nets.value", asked(batch["next_obs"], batch["goal"]), act)[:, 0]
    y = batch["reward"] + config["gamma"] * batch["discount"] * later
    frozen = state.frozen()

    def value() -> np.ndarray:
        return perceptron(state, ".nets.value", seen, act)[:, 0]

    def of_value() -> float:
        u = best - value()
        side = np.where(u < 0.0, 1.0 - config["expectile"], config["expectile"])
        return float(np.mean(side * u**2))

    def of_critics() -> float:
        q = pair(state, ".nets.critics", np.concatenate([seen, action], -1), config)
        return float(np.mean(((q - y) ** 2).sum(0)))

    def climbed() -> np.ndarray:
        mean = np.clip(perceptron(state, ".nets.policy.net", far, act), -1.0, 1.0)
        both = np.concatenate([far, mean], -1)
        return pair(frozen, ".nets.critics", both, config).min(0)

    scale = float(np.mean(np.abs(climbed()))) + 1e-6

    def of_policy() -> float:
        imitated = log_prob(state, ".nets.policy", far, action, config)
        return float(np.mean(-climbed() / scale - config["alpha"] * imitated))

    mean = perceptron(state, ".nets.policy.net", far, act)
    metrics = {
        "loss/v": of_value(),
        "loss/value": of_critics(),
        "loss/policy": of_policy(),
        "value/v": float(np.mean(value())),
        "policy/distance": float(np.mean(((mean - action) ** 2).sum(-1))),
    }
    slope = gradient(lambda: of_value() + of_critics() + of_policy(), state, ".nets")
    adam.descend(state, ".nets", ".optimiser", slope, config["lr"])
    state.follow(".target", ".nets.critics", config["tau"])
    return metrics, {}
