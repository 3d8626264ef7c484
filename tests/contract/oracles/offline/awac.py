"""AWAC (Nair 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.offline.iql import normalised
from oracles.online import td3
from oracles.pieces import adam, imitation
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import twins, twins_of_choices
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions (Nair 2020, algorithm 1); ``draws`` hold standard normal numbers."""
    batch = normalised(state, batch)
    following = value(state, ".target", batch, "next_", draws["next"])
    y = batch["reward"] + config["gamma"] * batch["discount"] * following
    metrics, samples = td3.critics(
        state, batch, config, y, prefix=".critics", optimiser=".critic_optimiser"
    )

    q = twins(state, ".critics", batch["obs"], batch["action"]).min(0)
    advantage = q - value(state, ".critics", batch, "", draws["now"])
    weight = np.minimum(np.exp(advantage / config["temperature"]), config["most"])

    def loss() -> float:
        log_prob = imitation.log_prob(state, ".actor", batch["obs"], batch)
        return -float(np.mean(weight * log_prob))

    metrics |= {"loss/policy": loss(), "policy/weight": float(np.mean(weight))}
    slope = gradient(loss, state, ".actor")
    adam.descend(state, ".actor", ".actor_optimiser", slope, config["lr"])
    state.follow(".target", ".critics", config["tau"])
    return metrics, samples


def value(state: Leaves, critics: str, batch: Any, when: str, noise: np.ndarray) -> np.ndarray:
    """Return E_a[min_i Q_i(s, a)] under the policy; continuous: of the one sample."""
    obs = batch[when + "obs"]
    if batch["action"].ndim == 1:
        log_p = imitation.choices(state, ".actor", obs, batch.get(when + "allowed"))
        return np.sum(np.exp(log_p) * twins_of_choices(state, critics, obs).min(0), -1)
    return twins(state, critics, obs, imitation.sample(state, ".actor", obs, noise)).min(0)
