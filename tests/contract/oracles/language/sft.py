"""Supervised fine-tuning."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import tokens
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn to say the answers' tokens, all of the batch alike."""
    ids, mask = tokens.read(batch)

    def loss() -> float:
        return -float(np.mean(tokens.log_prob(state, ".model", ids)[0][mask]))

    entropy = tokens.log_prob(state, ".model", ids)[1][mask]
    metrics = {"loss/text": loss(), "policy/entropy": float(np.mean(entropy))}
    slope = gradient(loss, state, ".model")
    return metrics | tokens.descend(state, ".model", slope, config), {}
