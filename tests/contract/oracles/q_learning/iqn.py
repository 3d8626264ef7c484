"""IQN (Dabney 2018, equations 3 and 4), double (van Hasselt 2016), with replay weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import dqn
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient
from oracles.q_learning import qr_dqn


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws`` has each row's tau, tau' and tau~."""
    rows, taus = np.arange(len(batch["reward"])), draws["now"]
    chooser = ".net" if config["double"] else ".target"
    q = quantiles(state, chooser, batch["next_obs"], draws["choice"]).mean(1)
    best = qr_dqn.greedy(q, batch)
    following = quantiles(state, ".target", batch["next_obs"], draws["next"])[rows, :, best]
    y = batch["reward"][:, None] + config["gamma"] * batch["discount"][:, None] * following

    def terms() -> tuple[float, np.ndarray]:
        theta = quantiles(state, ".net", batch["obs"], taus)[rows, :, batch["action"]]
        found = np.zeros(len(y))
        for i in range(theta.shape[1]):
            error = y - theta[:, i : i + 1]
            tilt = np.abs(taus[:, i : i + 1] - (error < 0))
            found += np.mean(tilt * dqn.huber(error, config["huber"]), 1)
        return float(np.mean(batch["weight"] * found)), theta.mean(1)

    slope = gradient(lambda: terms()[0], state, ".net")
    loss, q = terms()
    metrics = {"loss/value": loss, "value/q": float(np.mean(q)), "loss/grad_norm": adam.norm(slope)}
    metrics["policy/epsilon"] = dqn.epsilon(state, config)
    qr_dqn.step(state, slope, config)
    return metrics, {"td_error": y.mean(1) - q}


def quantiles(state: Leaves, net: str, obs: np.ndarray, taus: np.ndarray) -> np.ndarray:
    """Return theta, ``(row, tau, action)``."""
    psi = np.maximum(perceptron(state, f"{net}.psi", obs), 0.0)
    found = []
    for tau in taus.T:
        count = len(state[f"{net}.phi.layers[0].weight"])
        cosines = np.stack([np.cos(np.pi * i * tau) for i in range(count)], 1)
        phi = np.maximum(perceptron(state, f"{net}.phi", cosines), 0.0)
        found.append(perceptron(state, f"{net}.quantile", psi * phi))
    return np.stack(found, 1)
