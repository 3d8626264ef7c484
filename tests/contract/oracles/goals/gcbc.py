"""GCBC (Ghosh 2021; OGBench)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.distributions import log_softmax, normal_log_prob, of_choice
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Imitate the actions on the way to the policy's goals."""
    seen = asked(batch["obs"], batch["policy_goal"])

    def loss() -> float:
        return -float(np.mean(log_prob(state, ".policy", seen, batch["action"], config)))

    metrics = {"loss/policy": loss()}
    slope = gradient(loss, state, ".policy")
    adam.descend(state, ".policy", ".optimiser", slope, config["lr"])
    return metrics, {}


def asked(obs: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return an observation beside what it is asked for."""
    return np.concatenate([obs, goal], -1)


def log_prob(
    state: Leaves, prefix: str, seen: np.ndarray, action: np.ndarray, config: dict
) -> np.ndarray:
    """Return log pi(a|x): normal of deviation 1, or categorical."""
    outputs = perceptron(state, f"{prefix}.net", seen, config["activation"])
    if action.ndim == 1:
        return of_choice(log_softmax(outputs), action)
    return normal_log_prob(action, outputs, np.zeros_like(outputs))
