"""PEBBLE (Lee 2021): SAC's update by predicted rewards, and the reward's (Bradley and Terry)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.model_based import mbpo
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions whose reward is what the members predict on average."""
    reward = np.mean([predicted(state, batch, i) for i in range(config["members"])], 0)
    metrics, samples = mbpo.learn(state, {**batch, "reward": reward}, config, draws)
    return {**metrics, "value/reward": float(reward.mean())}, samples


def learn_reward(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Step every member down its cross entropy with the answers (Lee 2021, eq. 2)."""
    y, members = batch["preference"], range(config["members"])

    def chances() -> np.ndarray:
        sums = np.stack([predicted(state, batch, i).sum(-1) for i in members])
        odds = np.exp(sums)
        return odds[..., 1] / odds.sum(-1)

    def losses() -> np.ndarray:
        second = chances()
        return np.mean(-y * np.log(second) - (1.0 - y) * np.log(1.0 - second), -1)

    told = y != 0.5
    right = (chances() > 0.5)[:, told] == (y[told] == 1.0)
    metrics = {"loss": float(losses().mean()), "accuracy": float(right.mean())}
    slope = gradient(lambda: float(losses().sum()), state, ".reward")
    adam.descend(state, ".reward", ".optimiser", slope, config["reward_lr"])
    return metrics, {}


def predicted(state: Leaves, batch: Any, member: int) -> np.ndarray:
    """Return one member's rewards, of rows on any number of axes."""
    action, obs = batch["action"], batch["obs"]
    if action.ndim < obs.ndim:
        action = np.eye(state[".policy.actor.net.layers[2].bias"].size)[action.astype(int)]
    x = np.concatenate([obs, action], -1)
    flat = perceptron(state, ".reward", x.reshape(-1, x.shape[-1]), member=member)
    return np.tanh(flat[:, 0]).reshape(x.shape[:-1])
