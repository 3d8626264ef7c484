"""QR-DQN (Dabney 2018, algorithm 1), double (van Hasselt 2016), with replay weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import dqn
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; the target network is moved where its period is over."""
    rows = np.arange(len(batch["reward"]))
    every = quantiles(state, ".target", batch["next_obs"], config)
    chooser = quantiles(state, ".net", batch["next_obs"], config) if config["double"] else every
    best = greedy(chooser.mean(-1), batch)
    discount = config["gamma"] * batch["discount"][:, None]
    y = batch["reward"][:, None] + discount * every[rows, best]

    def terms() -> tuple[float, np.ndarray]:
        theta = quantiles(state, ".net", batch["obs"], config)[rows, batch["action"]]
        return float(np.mean(batch["weight"] * losses(theta, y, config["huber"]))), theta.mean(-1)

    slope = gradient(lambda: terms()[0], state, ".net")
    loss, q = terms()
    metrics = {"loss/value": loss, "value/q": float(np.mean(q)), "loss/grad_norm": adam.norm(slope)}
    metrics["policy/epsilon"] = dqn.epsilon(state, config)
    step(state, slope, config)
    return metrics, {"td_error": y.mean(-1) - q}


def quantiles(state: Leaves, prefix: str, obs: np.ndarray, config: dict) -> np.ndarray:
    """Return theta, ``(row, action, quantile)``."""
    found = perceptron(state, f"{prefix}.quantiles", obs)
    return found.reshape(len(obs), -1, config["quantiles"])


def greedy(q: np.ndarray, batch: Any) -> np.ndarray:
    """Return the best of the actions that are allowed after each row."""
    return (np.where(batch["next_allowed"], q, -np.inf) if "next_allowed" in batch else q).argmax(1)


def losses(theta: np.ndarray, y: np.ndarray, kappa: float) -> np.ndarray:
    """Return each row's sum over quantiles of the mean over targets (equation 10)."""
    count = theta.shape[1]
    found = np.zeros(len(y))
    for m in range(count):
        share, error = (2 * m + 1) / (2 * count), y - theta[:, m : m + 1]
        found += np.mean(np.abs(share - (error < 0)) * dqn.huber(error, kappa), 1)
    return found


def step(state: Leaves, slope: np.ndarray, config: dict) -> None:
    """Take a step of Adam, and move the target network where its period is over."""
    done = state[".updates"] / state[".planned"] if config["anneal"] else 0.0
    slope = adam.clipped(slope, config["max_grad_norm"])
    rate = config["lr"] * (1.0 - done)
    adam.descend(state, ".net", ".optimiser", slope, rate, epsilon=config["adam_eps"])
    state[".updates"] = state[".updates"] + 1
    if state[".updates"] % config["target_period"] == 0:
        state.follow(".target", ".net", config["tau"])
