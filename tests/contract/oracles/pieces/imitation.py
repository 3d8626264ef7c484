"""The policy of learners that imitate: a normal around tanh of a network, or a categorical."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces.distributions import log_softmax, normal_log_prob, of_choice
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron


def log_prob(state: Leaves, prefix: str, obs: np.ndarray, batch: Any) -> np.ndarray:
    """Return log pi(a|s) of the batch's actions."""
    if batch["action"].ndim == 1:
        return of_choice(choices(state, prefix, obs, batch.get("allowed")), batch["action"])
    mean, log_std = normal(state, prefix, obs)
    return normal_log_prob(batch["action"], mean, log_std)


def choices(
    state: Leaves, prefix: str, obs: np.ndarray, allowed: np.ndarray | None = None
) -> np.ndarray:
    """Return log pi(.|s) over choices."""
    logits = perceptron(state, f"{prefix}.net", obs)
    return log_softmax(logits if allowed is None else np.where(allowed, logits, -1e9))


def normal(state: Leaves, prefix: str, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and log deviation; the deviation does not depend on s."""
    mean = np.tanh(perceptron(state, f"{prefix}.net", obs))
    return mean, np.broadcast_to(np.clip(state[f"{prefix}.log_std"], -5.0, 2.0), mean.shape)


def sample(state: Leaves, prefix: str, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the action that ``noise`` makes, within the space."""
    mean, log_std = normal(state, prefix, obs)
    return np.clip(mean + np.exp(log_std) * noise, -1.0, 1.0)
