"""MEX (Liu 2023), model-free: TD3 whose critics also promise the actor's actions high values."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import td3
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import twins
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; actor and targets move in every ``delay``-th update.

    ``draws["noise"]`` is standard normal, ``(row, number)``.
    """
    y = td3.target(state, batch, config, draws["noise"])
    now = td3.action_now(state, batch)

    def errors() -> np.ndarray:
        return twins(state, ".nets.critics", batch["obs"], batch["action"]) - y

    def promised() -> float:
        return float(np.mean(twins(state, ".nets.critics", batch["obs"], now), 1).sum())

    def explained() -> float:
        return 0.5 * float(np.sum(batch["weight"] * errors() ** 2) / len(y))

    def loss() -> float:
        return explained() - config["optimism"] * promised()

    metrics = {"loss/value": explained(), "value/q": float(np.mean((errors() + y)[0]))}
    metrics["value/promised"] = promised() / 2
    found = metrics, {"td_error": np.mean(np.abs(errors()), 0)}
    slope = gradient(loss, state, ".nets.critics")
    adam.descend(state, ".nets.critics", ".critic_optimiser", slope, config["lr"])
    td3.delayed(state, batch, config, lambda: -float(np.mean(td3.first_value(state, batch))))
    return found
