"""Behaviour cloning (Pomerleau 1989)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam, imitation, normalisers
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions: likelihood, or the mean's squared error."""
    return clone(state, normalisers.seen(state, batch["obs"], ".normaliser"), batch, config)


def clone(state: Leaves, obs: np.ndarray, batch: Any, config: dict) -> tuple[dict, dict]:
    """Imitate the batch's actions, from observations as the networks get them."""

    def each() -> np.ndarray:
        if batch["action"].ndim == 1 or config["likelihood"]:
            return -imitation.log_prob(state, ".nets.policy", obs, batch)
        mean, _ = imitation.normal(state, ".nets.policy", obs)
        return np.sum((batch["action"] - mean) ** 2, -1)

    before = each()
    slope = gradient(lambda: float(np.mean(each())), state, ".nets")
    adam.descend(state, ".nets", ".optimiser", slope, config["lr"])
    return {"loss/policy": float(np.mean(before))}, {"td_error": np.abs(before)}
