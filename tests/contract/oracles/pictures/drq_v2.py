"""DrQ-v2 (Yarats 2021, section 3.1) on vectors, which have no encoder and are not shifted."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["next"]`` and ``draws["now"]`` are standard normal."""
    sigma = deviation(state, config)
    noise = {
        name: np.minimum(
            np.maximum(sigma * draws[name], -config["noise_clip"]), config["noise_clip"]
        )
        for name in ("next", "now")
    }
    chosen = policy(state, batch["next_obs"]) + noise["next"]
    following = critics(state, ".target", batch["next_obs"], np.clip(chosen, -1.0, 1.0)).min(0)
    y = batch["reward"] + config["gamma"] * batch["discount"] * following

    def loss() -> float:
        error = critics(state, ".nets.critics", batch["obs"], batch["action"]) - y
        return float(np.mean(batch["weight"] * (error**2).sum(0)))

    q = critics(state, ".nets.critics", batch["obs"], batch["action"])
    metrics = {"loss/value": loss(), "value/q": float(np.mean(q[0]))}
    slope = gradient(loss, state, ".nets.critics")
    adam.descend(state, ".nets.critics", ".critic_optimiser", slope, config["lr"])
    raw = policy(state, batch["obs"]) + noise["now"]
    pushed = np.clip(raw, -1.0, 1.0) - raw  # constant for the gradient

    def actor() -> float:
        action = policy(state, batch["obs"]) + noise["now"] + pushed
        return -float(np.mean(critics(state, ".nets.critics", batch["obs"], action).min(0)))

    metrics |= {"loss/policy": actor(), "policy/noise": sigma}
    slope = gradient(actor, state, ".nets.actor")
    adam.descend(state, ".nets.actor", ".actor_optimiser", slope, config["lr"])
    state.follow(".target", ".nets.critics", config["tau"])
    state[".updates"] = state[".updates"] + 1
    return metrics, {"td_error": np.abs(q - y).mean(0)}


def deviation(state: Leaves, config: dict) -> float:
    """Return sigma_t (equation 3), with T as a share of the planned updates."""
    share = float(state[".updates"]) / (config["noise_fraction"] * float(state[".planned"]))
    rest = max(1.0 - share, 0.0)
    return config["noise_initial"] + (1.0 - rest) * (
        config["noise_final"] - config["noise_initial"]
    )


def trunk(state: Leaves, nets: str, x: np.ndarray) -> np.ndarray:
    """Return tanh(norm(W x + b))."""
    x = perceptron(state, f"{nets}.trunk.layer", x)
    centred = x - x.mean(1, keepdims=True)
    unit = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return np.tanh(unit * state[f"{nets}.trunk.norm.scale"] + state[f"{nets}.trunk.norm.shift"])


def policy(state: Leaves, obs: np.ndarray) -> np.ndarray:
    """Return mu(s)."""
    below = trunk(state, ".nets.actor", obs)
    return np.tanh(perceptron(state, ".nets.actor.net", below))


def critics(state: Leaves, nets: str, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return Q_1(s, a) and Q_2(s, a) as ``(2, row)``."""
    both = np.concatenate([trunk(state, nets, obs), action], -1)
    return np.stack([perceptron(state, f"{nets}.{i}", both)[:, 0] for i in ("first", "second")])
