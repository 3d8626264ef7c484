"""f-DVL (Sikchi 2024): IQL with the dual of an f-divergence as the value's loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.offline import iql
from oracles.pieces.leaves import Leaves


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions with (1 - lambda) V + lambda f*(Q - V) (Sikchi 2024, eq. 15), whose
    first term is written (1 - lambda) (V - Q): Q is a constant here."""
    share = config["weight"]

    def loss(error: np.ndarray) -> float:
        gain = np.where(error > 0.0, error, 0.0)
        if config["divergence"] == "chi_square":
            gain = gain + gain**2 / 4.0
        return float(np.mean((1.0 - share) * -error + share * gain))

    return iql.learn_by(loss, state, batch, config)
