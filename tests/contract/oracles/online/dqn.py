"""DQN (Mnih 2015), double (van Hasselt 2016), dueling (Wang 2016), with replay weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; the target network is moved where its period is over."""
    rows = np.arange(len(batch["reward"]))
    every = values(state, ".target", batch["next_obs"], config)
    if "next_allowed" in batch:
        every = np.where(batch["next_allowed"], every, -np.inf)
    best = every
    if config["double"]:
        best = values(state, ".net", batch["next_obs"], config)
        if "next_allowed" in batch:
            best = np.where(batch["next_allowed"], best, -np.inf)
    y = batch["reward"] + config["gamma"] * batch["discount"] * every[rows, best.argmax(-1)]

    def terms() -> tuple[float, np.ndarray]:
        q = values(state, ".net", batch["obs"], config)[rows, batch["action"]]
        return float(np.mean(batch["weight"] * huber(y - q, config["huber"]))), q

    slope = gradient(lambda: terms()[0], state, ".net")
    loss, q = terms()
    metrics = {
        "loss/value": loss,
        "value/q": float(np.mean(q)),
        "loss/grad_norm": adam.norm(slope),
        "policy/epsilon": epsilon(state, config),
    }
    done = state[".updates"] / state[".planned"] if config["anneal"] else 0.0
    slope = adam.clipped(slope, config["max_grad_norm"])
    adam.descend(state, ".net", ".optimiser", slope, config["lr"] * (1.0 - done))
    state[".updates"] = state[".updates"] + 1
    if state[".updates"] % config["target_period"] == 0:
        state.follow(".target", ".net", config["tau"])
    return metrics, {"td_error": y - q}


def values(state: Leaves, prefix: str, obs: np.ndarray, config: dict) -> np.ndarray:
    """Return Q of every action (Wang 2016, eq. 9, where dueling)."""
    advantage = perceptron(state, f"{prefix}.advantage", obs)
    if not config["dueling"]:
        return advantage
    value = perceptron(state, f"{prefix}.value", obs)
    return value + advantage - advantage.mean(-1, keepdims=True)


def huber(error: np.ndarray, delta: float) -> np.ndarray:
    """Return half the square of errors up to ``delta``, and a line beyond (Huber 1964)."""
    size = np.abs(error)
    if np.isinf(delta):
        return 0.5 * size**2
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def epsilon(state: Leaves, config: dict) -> float:
    """Return the share of random actions at this point of the run."""
    share = state[".updates"] / (config["exploration_fraction"] * state[".planned"])
    first, final = config["exploration_initial"], config["exploration_final"]
    return float(first + (final - first) * min(share, 1.0))
