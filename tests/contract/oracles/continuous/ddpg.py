"""DDPG (Lillicrap 2016, algorithm 1), on one batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions: the critic, then the actor by the new critic, then both targets."""
    following = values(state, ".target", batch["next_obs"])
    y = batch["reward"] + config["gamma"] * batch["discount"] * following

    def loss() -> float:
        error = values(state, ".nets", batch["obs"], batch["action"]) - y
        return 0.5 * float(np.mean(batch["weight"] * error**2))

    q = values(state, ".nets", batch["obs"], batch["action"])
    metrics = {"loss/value": loss(), "value/q": float(np.mean(q))}
    slope = gradient(loss, state, ".nets.critics")
    adam.descend(state, ".nets.critics", ".critic_optimiser", slope, config["lr"])

    def actor() -> float:
        return -float(np.mean(values(state, ".nets", batch["obs"])))

    slope = gradient(actor, state, ".nets.actor")
    adam.descend(state, ".nets.actor", ".actor_optimiser", slope, config["lr"])
    state.follow(".target", ".nets", config["tau"])
    state[".updates"] = state[".updates"] + 1
    return metrics, {"td_error": np.abs(q - y)}


def values(state: Leaves, nets: str, obs: Any, action: Any = None) -> np.ndarray:
    """Return Q(s, a), of the actor's actions where none are given."""
    if action is None:
        action = np.tanh(perceptron(state, f"{nets}.actor.net", obs))
    both = np.concatenate([obs, action], -1)
    return perceptron(state, f"{nets}.critics.nets", both, member=0)[:, 0]
