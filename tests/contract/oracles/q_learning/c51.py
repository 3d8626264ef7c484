"""C51 (Bellemare 2017, algorithm 1), double (van Hasselt 2016), with replay weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from oracles.online import dqn
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient
from oracles.q_learning import qr_dqn


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; the target network is moved where its period is over."""
    z, rows = atoms(config), np.arange(len(batch["reward"]))
    following = chances(logits(state, ".target", batch["next_obs"], config))
    chooser = following
    if config["double"]:
        chooser = chances(logits(state, ".net", batch["next_obs"], config))
    best = qr_dqn.greedy(chooser @ z, batch)
    m = projected(following[rows, best], batch, config)

    def scores() -> np.ndarray:
        return logits(state, ".net", batch["obs"], config)[rows, batch["action"]]

    slope = gradient(lambda: loss(scores(), m, batch), state, ".net")
    metrics, samples = told(scores(), m, batch, config)
    metrics["loss/grad_norm"] = adam.norm(slope)
    metrics["policy/epsilon"] = dqn.epsilon(state, config)
    qr_dqn.step(state, slope, config)
    return metrics, samples


def atoms(config: dict) -> np.ndarray:
    """Return z_i."""
    return np.linspace(config["v_min"], config["v_max"], config["atoms"])


def logits(state: Leaves, prefix: str, obs: np.ndarray, config: dict) -> np.ndarray:
    """Return the logits, ``(row, action, atom)``."""
    return perceptron(state, f"{prefix}.logits", obs).reshape(len(obs), -1, config["atoms"])


def chances(scores: np.ndarray) -> np.ndarray:
    """Return the softmax."""
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def projected(p: np.ndarray, batch: Any, config: dict) -> np.ndarray:
    """Return m, atom by atom as algorithm 1 gives it away."""
    z = atoms(config)
    gap, m = z[1] - z[0], np.zeros_like(p)
    for row in range(len(p)):
        for j in range(len(z)):
            y = batch["reward"][row] + config["gamma"] * batch["discount"][row] * z[j]
            place = (min(max(y, z[0]), z[-1]) - z[0]) / gap
            below = min(math.floor(place), len(z) - 2)
            m[row, below] += p[row, j] * (below + 1 - place)
            m[row, below + 1] += p[row, j] * (place - below)
    return m


def loss(scores: np.ndarray, m: np.ndarray, batch: Any) -> float:
    """Return the weighted mean of the cross entropies."""
    return float(np.mean(batch["weight"] * np.sum(-m * np.log(chances(scores)), 1)))


def told(scores: np.ndarray, m: np.ndarray, batch: Any, config: dict) -> tuple[dict, dict]:
    """Return the metrics of the loss, and each row's divergence of m from p."""
    p = chances(scores)
    q = float(np.mean(p @ atoms(config)))
    ratio = np.where(m > 0.0, m, 1.0) / np.where(m > 0.0, p, 1.0)
    metrics = {"loss/value": loss(scores, m, batch), "value/q": q}
    return metrics, {"td_error": np.sum(m * np.log(ratio), 1)}
