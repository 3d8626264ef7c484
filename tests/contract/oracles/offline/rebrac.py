"""ReBRAC (Tarasov 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.offline.iql import normalised
from oracles.online import td3
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import twins


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions: TD3 with a penalty on both sides (Tarasov 2023, section 3)."""
    batch = normalised(state, batch)
    action = td3.target_action(state, batch, config, draws["noise"])
    far = np.sum((action - batch["next_action"]) ** 2, -1) * ~batch["last"]
    least = twins(state, ".target.critics", batch["next_obs"], action).min(0)
    following = least - config["critic_penalty"] * far
    y = batch["reward"] + config["gamma"] * batch["discount"] * following
    metrics, samples = td3.critics(state, batch, config, y)

    size = float(np.mean(np.abs(least_value(state, batch))))  # a constant in the loss

    def loss() -> float:
        away = np.sum((td3.action_now(state, batch) - batch["action"]) ** 2, -1)
        worth = least_value(state, batch) / size
        return float(np.mean(config["actor_penalty"] * away - worth))

    td3.delayed(state, batch, config, loss)
    return metrics | {"policy/distance": float(np.mean(far))}, samples


def least_value(state: Leaves, batch: Any) -> np.ndarray:
    """Return min_i Q_i(s, mu(s))."""
    return twins(state, ".nets.critics", batch["obs"], td3.action_now(state, batch)).min(0)
