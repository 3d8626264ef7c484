"""TD7 (Fujimoto 2023, algorithm 1 without checkpoints, and appendix A)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["noise"]`` is standard normal, ``(row, number)``."""
    y = target(state, batch, config, draws["noise"])
    metrics = {"loss/embedding": encoders(state, batch, config)}

    def critics() -> float:
        size = np.abs(y - values(state, ".nets", batch["obs"], batch["action"]))
        every = np.where(size < 1.0, 0.5 * size**2, size - 0.5).sum(0)
        return float(np.mean(batch["weight"] * every))

    q = values(state, ".nets", batch["obs"], batch["action"])
    metrics |= {"loss/value": critics(), "value/q": float(np.mean(q[0]))}
    slope = gradient(critics, state, ".nets.critics")
    adam.descend(state, ".nets.critics", ".optimisers[1]", slope, config["lr"])
    state[".updates"] = state[".updates"] + 1
    if state[".updates"] % config["delay"] == 0:
        slope = gradient(lambda: actor(state, batch), state, ".nets.actor")
        adam.descend(state, ".nets.actor", ".optimisers[2]", slope, config["lr"])
    state[".lowest"] = np.minimum(state[".lowest"], y.min())
    state[".highest"] = np.maximum(state[".highest"], y.max())
    if state[".updates"] % config["target_period"] == 0:
        state.put(".target", state.vector(".nets"))
        state.put(".nets.embedding", state.vector(".embedding"))
        state[".low"], state[".high"] = state[".lowest"].copy(), state[".highest"].copy()
    return metrics, {"td_error": np.maximum(np.abs(q - y).max(0), 1.0)}


def sized(x: np.ndarray) -> np.ndarray:
    """Return rows of numbers whose mean size is 1."""
    return x / np.abs(x).mean(-1, keepdims=True)


def of_state(state: Leaves, encoder: str, obs: np.ndarray) -> np.ndarray:
    """Return z^s."""
    return sized(perceptron(state, f"{encoder}.state", obs, "elu"))


def of_pair(state: Leaves, encoder: str, z: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return z^sa."""
    return perceptron(state, f"{encoder}.pair", np.concatenate([z, action], -1), "elu")


def encoders(state: Leaves, batch: Any, config: dict) -> float:
    """Take one step of the encoders towards the next states' embeddings; return the loss before."""
    following = of_state(state, ".embedding", batch["next_obs"])

    def loss() -> float:
        z = of_state(state, ".embedding", batch["obs"])
        return float(np.mean((of_pair(state, ".embedding", z, batch["action"]) - following) ** 2))

    before = loss()
    slope = gradient(loss, state, ".embedding")
    adam.descend(state, ".embedding", ".optimisers[0]", slope, config["lr"])
    return before


def mu(state: Leaves, nets: str, obs: np.ndarray) -> np.ndarray:
    """Return the actor's actions."""
    first = sized(perceptron(state, f"{nets}.actor.net.first", obs))
    inputs = np.concatenate([first, of_state(state, f"{nets}.embedding", obs)], -1)
    return np.tanh(perceptron(state, f"{nets}.actor.net.rest", inputs))


def values(state: Leaves, nets: str, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return Q_1 and Q_2, ``(2, row)``."""
    z = of_state(state, f"{nets}.embedding", obs)
    pair = of_pair(state, f"{nets}.embedding", z, action)
    found = []
    for name in ("first", "second"):
        critic = f"{nets}.critics.{name}"
        own = sized(perceptron(state, f"{critic}.first", np.concatenate([obs, action], -1)))
        inputs = np.concatenate([own, pair, z], -1)
        found.append(perceptron(state, f"{critic}.rest", inputs, "elu")[:, 0])
    return np.stack(found)


def actor(state: Leaves, batch: Any) -> float:
    """Return the actor's loss."""
    action = mu(state, ".nets", batch["obs"])
    return -float(np.mean(values(state, ".nets", batch["obs"], action)))


def target(state: Leaves, batch: Any, config: dict, noise: np.ndarray) -> np.ndarray:
    """Return y, whose next value stays within the targets seen before."""
    clip = config["noise_clip"]
    jitter = np.clip(config["target_noise"] * noise, -clip, clip)
    action = np.clip(mu(state, ".target", batch["next_obs"]) + jitter, -1.0, 1.0)
    least = values(state, ".target", batch["next_obs"], action).min(0)
    within = np.minimum(np.maximum(least, state[".low"]), state[".high"])
    return batch["reward"] + config["gamma"] * batch["discount"] * within
