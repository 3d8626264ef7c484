"""TD3 (Fujimoto 2018, algorithm 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron, twins
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; actor and targets move in every ``delay``-th update.

    ``draws["noise"]`` is standard normal, ``(row, number)``.
    """
    y = target(state, batch, config, draws["noise"])
    found = critics(state, batch, config, y)
    delayed(state, batch, config, lambda: -float(np.mean(first_value(state, batch))))
    return found


def target_action(state: Leaves, batch: Any, config: dict, noise: np.ndarray) -> np.ndarray:
    """Return mu'(s') with clipped noise, within the space (Fujimoto 2018, eq. 14)."""
    clip = config["noise_clip"]
    jitter = np.clip(config["target_noise"] * noise, -clip, clip)
    mu = np.tanh(perceptron(state, ".target.actor.net", batch["next_obs"]))
    return np.clip(mu + jitter, -1.0, 1.0)


def target(state: Leaves, batch: Any, config: dict, noise: np.ndarray) -> np.ndarray:
    """Return y = r + g min_i Q'_i(s', a')."""
    action = target_action(state, batch, config, noise)
    least = twins(state, ".target.critics", batch["next_obs"], action).min(0)
    return batch["reward"] + config["gamma"] * batch["discount"] * least


def critics(
    state: Leaves,
    batch: Any,
    config: dict,
    y: np.ndarray,
    *,
    prefix: str = ".nets.critics",
    optimiser: str = ".critic_optimiser",
) -> tuple[dict, dict]:
    """Take one step of both critics towards ``y``; return metrics and |TD errors|."""

    def loss() -> float:
        error = twins(state, prefix, batch["obs"], batch["action"]) - y
        return 0.5 * float(np.sum(batch["weight"] * error**2) / len(y))

    q = twins(state, prefix, batch["obs"], batch["action"])
    metrics = {"loss/value": loss(), "value/q": float(np.mean(q[0]))}
    adam.descend(state, prefix, optimiser, gradient(loss, state, prefix), config["lr"])
    return metrics, {"td_error": np.mean(np.abs(q - y), 0)}


def action_now(state: Leaves, batch: Any) -> np.ndarray:
    """Return mu(s)."""
    return np.tanh(perceptron(state, ".nets.actor.net", batch["obs"]))


def first_value(state: Leaves, batch: Any) -> np.ndarray:
    """Return Q_1(s, mu(s))."""
    return twins(state, ".nets.critics", batch["obs"], action_now(state, batch))[0]


def delayed(state: Leaves, batch: Any, config: dict, loss: Any) -> None:
    """Count the update; where it is due, step down the actor's loss and move the targets."""
    state[".updates"] = state[".updates"] + 1
    if state[".updates"] % config["delay"]:
        return
    slope = gradient(loss, state, ".nets.actor")
    adam.descend(state, ".nets.actor", ".actor_optimiser", slope, config["lr"])
    state.follow(".target", ".nets", config["tau"])
