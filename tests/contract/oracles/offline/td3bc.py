"""TD3+BC (Fujimoto 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.offline.iql import normalised
from oracles.online import td3
from oracles.pieces.leaves import Leaves


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions: TD3's critics, and an actor that imitates as well (eqs. 3 to 5)."""
    batch = normalised(state, batch)
    found = td3.critics(state, batch, config, td3.target(state, batch, config, draws["noise"]))
    size = float(np.mean(np.abs(td3.first_value(state, batch))))  # a constant in the loss

    def loss() -> float:
        away = td3.action_now(state, batch) - batch["action"]
        worth = config["alpha"] / size * np.mean(td3.first_value(state, batch))
        return float(np.mean(away**2) - worth)

    td3.delayed(state, batch, config, loss)
    return found
