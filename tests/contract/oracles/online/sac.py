"""SAC (Haarnoja 2018b) and its discrete form (Christodoulou 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import td3
from oracles.pieces import adam
from oracles.pieces.distributions import entropy_of_choices, log_softmax, squashed
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron, twins, twins_of_choices
from oracles.pieces.slopes import gradient

LEAST, MOST = -20.0, 2.0  # bounds of the log deviation


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["next"]`` and ``draws["now"]`` are standard normal."""
    alpha = float(np.exp(state[".log_alpha"]))
    following, _ = value(state, ".target", batch, "next_", alpha, noise=draws["next"])
    y = batch["reward"] + config["gamma"] * batch["discount"] * following
    metrics, samples = td3.critics(
        state, batch, config, y, prefix=".critics", optimiser=".optimisers[0]"
    )
    metrics |= actor_and_temperature(state, batch, config, draws["now"], share=0.98)
    state.follow(".target", ".critics", config["tau"])
    return metrics, samples


def actor_and_temperature(
    state: Leaves, batch: Any, config: dict, noise: np.ndarray, share: float
) -> dict:
    """Step down -E[V], then down the temperature's loss; return their metrics."""
    alpha = float(np.exp(state[".log_alpha"]))
    rate = config.get("actor_lr", config["lr"])

    def loss() -> float:
        return -float(np.mean(value(state, ".critics", batch, "", alpha, noise=noise)[0]))

    entropy = value(state, ".critics", batch, "", alpha, noise=noise)[1]
    metrics = {"loss/policy": loss(), "policy/entropy": float(np.mean(entropy))}
    slope = gradient(loss, state, ".actor")
    adam.descend(state, ".actor", ".optimisers[1]", slope, rate)
    if config["tune_alpha"]:
        temperature(state, batch, config, entropy, share=share, rate=rate)
    return metrics | {"policy/alpha": alpha}


def temperature(
    state: Leaves, batch: Any, config: dict, entropy: np.ndarray, *, share: float, rate: float
) -> None:
    """Step down J(alpha) = E[alpha (H - H_target)] in log alpha (Haarnoja 2018b, eq. 18)."""
    wanted: Any = config["target_entropy"]
    if wanted is None and batch["action"].ndim == 1:
        choices = state[f".actor.net.layers[{depth(state) - 1}].bias"].size
        wanted = share * np.log(choices)
        if "allowed" in batch:
            wanted = share * np.log(batch["allowed"].sum(-1))
    elif wanted is None:
        wanted = -float(batch["action"].shape[-1])

    def loss() -> float:
        return float(np.mean(np.exp(state[".log_alpha"]) * (entropy - wanted)))

    slope = gradient(loss, state, ".log_alpha")
    adam.descend(state, ".log_alpha", ".optimisers[2]", slope, rate)


def depth(state: Leaves) -> int:
    """Return the number of the actor's layers."""
    return sum(1 for path in state.under(".actor.net") if path.endswith(".weight"))


def value(
    state: Leaves, critics: str, batch: Any, when: str, alpha: float, *, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return V(s) = E_a[min_i Q_i(s, a) - alpha log pi(a|s)] and the entropy, of the observations
    ("") or the next ones ("next_"); continuous: by the one sample that ``noise`` makes."""
    obs = batch[when + "obs"]
    if batch["action"].ndim == 1:
        log_p = choices(state, batch, when)
        q = twins_of_choices(state, critics, obs).min(0)
        return np.sum(np.exp(log_p) * (q - alpha * log_p), -1), entropy_of_choices(log_p)
    action, log_p = sample(state, obs, noise)
    return twins(state, critics, obs, action).min(0) - alpha * log_p, -log_p


def choices(state: Leaves, batch: Any, when: str) -> np.ndarray:
    """Return log pi(.|s), over the allowed actions where the batch says which are."""
    logits = perceptron(state, ".actor.net", batch[when + "obs"])
    if when + "allowed" in batch:
        logits = np.where(batch[when + "allowed"], logits, -1e9)
    return log_softmax(logits)


def sample(
    state: Leaves, obs: np.ndarray, noise: np.ndarray, least: float = LEAST
) -> tuple[np.ndarray, np.ndarray]:
    """Return the squashed action that ``noise`` makes, and its log-density."""
    mean, log_std = np.split(perceptron(state, ".actor.net", obs), 2, -1)
    return squashed(mean, np.clip(log_std, least, MOST), noise)
