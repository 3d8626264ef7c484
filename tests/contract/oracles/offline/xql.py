"""XQL (Garg 2023): IQL with the Gumbel regression's loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.offline import iql
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import twins


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions with e^z - z - 1, on a line beyond the clip (Garg 2023, eq. 11)."""
    scale = largest(state, batch, config)

    def loss(error: np.ndarray) -> float:
        return float(np.mean(gumbel(error / config["temperature"], config["clip"]))) / scale

    return iql.learn_by(loss, state, batch, config)


def largest(state: Leaves, batch: Any, config: dict) -> float:
    """Return the batch's largest e^z, a constant that the loss is divided by: between 1 and the
    exponential of the clip."""
    seen = iql.normalised(state, batch)
    q = twins(state, ".target", seen["obs"], batch["action"]).min(0)
    z = (q - iql.value(state, seen["obs"])) / config["temperature"]
    return float(np.exp(np.clip(z.max(), 0.0, config["clip"])))


def gumbel(z: np.ndarray, clip: float) -> np.ndarray:
    """Return e^z - z - 1; beyond ``clip`` the tangent of it there."""
    tangent = (np.exp(clip) - clip - 1.0) + (np.exp(clip) - 1.0) * (z - clip)
    return np.where(z > clip, tangent, np.exp(np.minimum(z, clip)) - z - 1.0)
