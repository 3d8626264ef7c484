"""Munchausen DQN (Vieillard 2020, equation 2): its sums over actions written out."""

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
    """Learn from transitions; the target network is moved where its period is over."""
    rows, tau = np.arange(len(batch["reward"])), config["temperature"]
    _, log_pi = policy(state, batch["obs"], batch.get("allowed"), tau)
    bonus = config["alpha"] * np.clip(
        tau * log_pi[rows, batch["action"]], config["lowest_bonus"], 0.0
    )
    q_next, log_next = policy(state, batch["next_obs"], batch.get("next_allowed"), tau)
    pi = np.exp(log_next)
    soft = np.where(pi > 0.0, pi * (q_next - tau * np.where(pi > 0.0, log_next, 0.0)), 0.0).sum(1)
    y = batch["reward"] + bonus + config["gamma"] * batch["discount"] * soft

    def terms() -> tuple[float, np.ndarray]:
        q = perceptron(state, ".net.advantage", batch["obs"])[rows, batch["action"]]
        return float(np.mean(dqn.huber(y - q, config["huber"]))), q

    slope = gradient(lambda: terms()[0], state, ".net")
    loss, q = terms()
    metrics = {"loss/value": loss, "value/q": float(np.mean(q)), "loss/grad_norm": adam.norm(slope)}
    metrics |= {"policy/epsilon": dqn.epsilon(state, config), "value/bonus": float(np.mean(bonus))}
    qr_dqn.step(state, slope, config)
    return metrics, {"td_error": y - q}


def policy(state: Leaves, obs: np.ndarray, allowed: Any, tau: float) -> tuple[np.ndarray, Any]:
    """Return the target network's Q and log pi of every action."""
    q = perceptron(state, ".target.advantage", obs)
    scores = q / tau if allowed is None else np.where(allowed, q / tau, -np.inf)
    raised = np.exp(scores - scores.max(1, keepdims=True))
    with np.errstate(divide="ignore"):
        return q, np.log(raised / raised.sum(1, keepdims=True))
