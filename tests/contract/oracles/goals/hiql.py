"""HIQL (Park 2023, eqs. 4, 6 and 7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.goals.gcbc import asked, log_prob
from oracles.goals.gcivl import pair, value_loss
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn values of represented goals, and two policies from their differences; what is a target
    or a weight is of the state before the update."""
    frozen, obs = state.frozen(), batch["obs"]

    def values(prefix: str, at: np.ndarray, goal: np.ndarray, of: Leaves = frozen) -> np.ndarray:
        seen = asked(at, representation(of, f"{prefix}.phi", at, goal, config))
        return pair(of, f"{prefix}.values", seen, config)

    def weight(there: np.ndarray, goal: np.ndarray, beta: float) -> np.ndarray:
        gain = values(".nets.values", there, goal).mean(0) - values(".nets.values", obs, goal).mean(
            0
        )
        return np.minimum(np.exp(beta * gain), config["most"])

    old = [values(".target", at, batch["goal"]) for at in (obs, batch["next_obs"])]
    near, point, far = (batch[k] for k in ("way_point", "policy_way_point", "policy_goal"))
    low = weight(batch["next_obs"], near, config["low_beta"])
    high = weight(batch["policy_way_point_obs"], far, config["high_beta"])
    near_phi, point_phi = (
        representation(frozen, ".nets.values.phi", obs, goal, config) for goal in (near, point)
    )

    def of_values() -> float:
        now = values(".nets.values", obs, batch["goal"], state)
        return value_loss(now, *old, batch, config)

    def of_low() -> float:
        each = log_prob(state, ".nets.low", asked(obs, near_phi), batch["action"], config)
        return -float(np.mean(low * each))

    def of_high() -> float:
        each = log_prob(state, ".nets.high", asked(obs, far), point_phi, config)
        return -float(np.mean(high * each))

    metrics = {
        "loss/v": of_values(),
        "loss/low": of_low(),
        "loss/high": of_high(),
        "value/v": float(values(".nets.values", obs, batch["goal"]).mean()),
        "policy/weight": float(np.mean(low)),
        "policy/high_weight": float(np.mean(high)),
    }
    slope = gradient(lambda: of_values() + of_low() + of_high(), state, ".nets")
    adam.descend(state, ".nets", ".optimiser", slope, config["lr"])
    state.follow(".target", ".nets.values", config["tau"])
    return metrics, {}


def representation(
    state: Leaves, prefix: str, at: np.ndarray, goal: np.ndarray, config: dict
) -> np.ndarray:
    """Return phi(s, g), on the sphere whose radius is the root of its dimension."""
    raw = perceptron(state, prefix, asked(at, goal), config["activation"])
    return raw / np.linalg.norm(raw, axis=-1, keepdims=True) * np.sqrt(raw.shape[-1])
