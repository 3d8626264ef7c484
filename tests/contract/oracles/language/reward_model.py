"""A reward model (Bradley & Terry 1952; Ouyang 2022), held near 0 (Eisenstein 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import pairs, tokens
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient

LEARNED = (".model", ".head")


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from pairs of texts."""
    ids, mask = pairs.read(batch)

    def scores() -> np.ndarray:
        found = []
        for lines, own in zip(ids, mask, strict=True):
            read = tokens.hidden(state, ".model", lines) @ state[".head"]
            last = [np.flatnonzero(row)[-1] + 1 for row in own]  # the answer's last token
            found.append(read[np.arange(len(last)), last])
        return np.stack(found)

    def loss() -> float:
        chosen, rejected = scores()
        drift = config["centring"] * (chosen + rejected) ** 2
        return float(np.mean(drift - pairs.log_sigmoid(chosen - rejected)))

    chosen, rejected = scores()
    metrics = {
        "loss/reward": loss(),
        "reward/accuracy": np.mean(chosen > rejected),
        "reward/margin": np.mean(chosen - rejected),
        "reward/middle": np.mean(chosen + rejected) / 2.0,
    }
    slope = gradient(loss, state, LEARNED)
    return metrics | tokens.descend(state, LEARNED, slope, config), {}
