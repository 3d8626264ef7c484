"""IQL (Kostrikov 2022), and the frame that XQL and f-DVL share with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.online import td3
from oracles.pieces import adam, imitation, normalisers
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron, twins
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions with the expectile loss (Kostrikov 2022, eqs. 5 to 7)."""
    tau = config["expectile"]

    def expectile(error: np.ndarray) -> float:
        return float(np.mean(np.where(error > 0.0, tau, 1.0 - tau) * error**2))

    return learn_by(expectile, state, batch, config)


def learn_by(
    value_loss: Callable[[np.ndarray], float], state: Leaves, batch: Any, config: dict
) -> tuple[dict, dict]:
    """Learn with any loss of the errors min_i Q'_i(s, a) - V(s)."""
    batch = normalised(state, batch)
    q = twins(state, ".target", batch["obs"], batch["action"]).min(0)
    before = value(state, batch["obs"])
    metrics = {"loss/v": value_loss(q - before), "value/v": float(np.mean(before))}
    slope = gradient(lambda: value_loss(q - value(state, batch["obs"])), state, ".value")
    adam.descend(state, ".value", ".optimisers[0]", slope, config["lr"])

    weight = np.minimum(np.exp(config["beta"] * (q - before)), config["most"])

    def policy_loss() -> float:
        log_prob = imitation.log_prob(state, ".policy", batch["obs"], batch)
        return -float(np.mean(weight * log_prob))

    metrics |= {"loss/policy": policy_loss(), "policy/weight": float(np.mean(weight))}
    slope = gradient(policy_loss, state, ".policy")
    adam.descend(state, ".policy", ".optimisers[2]", slope, policy_rate(state, config))

    following = value(state, batch["next_obs"])
    reward = batch["reward"] * state[".reward_scale"]
    y = reward + config["gamma"] * batch["discount"] * following
    found, samples = td3.critics(
        state, batch, config, y, prefix=".critics", optimiser=".optimisers[1]"
    )
    state.follow(".target", ".critics", config["tau"])
    state[".updates"] = state[".updates"] + 1
    return metrics | found, samples


def normalised(state: Leaves, batch: Any) -> dict:
    """Return the batch with both observations in the units of the log."""
    names = ("obs", "next_obs")
    return dict(batch) | {n: normalisers.seen(state, batch[n], ".normaliser") for n in names}


def value(state: Leaves, obs: np.ndarray) -> np.ndarray:
    """Return V(s)."""
    return perceptron(state, ".value", obs)[:, 0]


def policy_rate(state: Leaves, config: dict) -> float:
    """Return the policy's step size: a half cosine over the planned updates."""
    if not config["anneal"]:
        return config["lr"]
    angle = np.pi * min(state[".updates"] / state[".planned"], 1.0)
    return float(config["lr"] * (1.0 + np.cos(angle)) / 2.0)
