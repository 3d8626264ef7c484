"""CURL (Laskin 2020, algorithm 1) on vectors, which have no encoder and are not shifted."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pictures import drq_v2
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient

PARTS = (".nets.critics.trunk", ".similarity")


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn as DrQ-v2, then tell the rows apart."""
    metrics, samples = drq_v2.learn(state, batch, config, draws)
    keys = seen(state, ".key_trunk", batch["obs"])

    def loss() -> float:
        queries = seen(state, ".nets.critics.trunk", batch["obs"])
        total = 0.0
        for i, query in enumerate(queries):
            logits = [query @ state[".similarity"] @ key for key in keys]
            total -= np.log(np.exp(logits[i]) / np.sum(np.exp(logits)))
        return float(total / len(queries))

    metrics["loss/contrast"] = loss()
    slope = gradient(loss, state, PARTS)
    adam.descend(state, PARTS, ".contrast_optimiser", slope, config["lr"])
    state.follow(".key_trunk", ".nets.critics.trunk", config["key_tau"])
    return metrics, samples


def seen(state: Leaves, prefix: str, x: np.ndarray) -> np.ndarray:
    """Return tanh(norm(W x + b))."""
    x = perceptron(state, f"{prefix}.layer", x)
    centred = x - x.mean(1, keepdims=True)
    unit = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return np.tanh(unit * state[f"{prefix}.norm.scale"] + state[f"{prefix}.norm.shift"])
