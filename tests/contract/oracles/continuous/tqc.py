"""TQC (Kuznetsov 2020, section 4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import sac
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["next"]`` and ``draws["now"]`` are standard normal."""
    alpha = float(np.exp(state[".log_alpha"]))
    y = targets(state, batch, config, alpha, draws["next"])

    def loss() -> float:
        z = atoms(state, ".critics", config, batch["obs"], batch["action"])
        return float(np.mean(batch["weight"] * quantile_losses(z, y)))

    q = atoms(state, ".critics", config, batch["obs"], batch["action"]).mean((0, 2))
    metrics = {"loss/value": loss(), "value/q": float(np.mean(q))}
    samples = {"td_error": np.abs(q - y.mean(1))}
    slope = gradient(loss, state, ".critics")
    adam.descend(state, ".critics", ".optimisers[0]", slope, config["lr"])

    def actor() -> float:
        action, log_p = sac.sample(state, batch["obs"], draws["now"])
        z = atoms(state, ".critics", config, batch["obs"], action)
        return float(np.mean(alpha * log_p - z.mean((0, 2))))

    entropy = -sac.sample(state, batch["obs"], draws["now"])[1]
    metrics |= {"loss/policy": actor(), "policy/entropy": float(np.mean(entropy))}
    slope = gradient(actor, state, ".actor")
    adam.descend(state, ".actor", ".optimisers[1]", slope, config["lr"])
    if config["tune_alpha"]:
        sac.temperature(state, batch, config, entropy, share=1.0, rate=config["lr"])
    state.follow(".target", ".critics", config["tau"])
    return metrics | {"policy/alpha": alpha}, samples


def atoms(state: Leaves, critics: str, config: dict, obs: Any, action: Any) -> np.ndarray:
    """Return theta_n,m, ``(critic, row, quantile)``."""
    x = np.concatenate([obs, action], -1)
    return np.stack(
        [perceptron(state, f"{critics}.nets", x, member=n) for n in range(config["members"])]
    )


def targets(state: Leaves, batch: Any, config: dict, alpha: float, noise: Any) -> np.ndarray:
    """Return the kept atoms of every row, ``(row, atom)`` (equations 9 to 11)."""
    action, log_p = sac.sample(state, batch["next_obs"], noise)
    z = atoms(state, ".target", config, batch["next_obs"], action)
    kept = config["members"] * (config["quantiles"] - config["drop"])
    rows = []
    for row in range(len(log_p)):
        smallest = sorted(z[:, row].ravel())[:kept]
        soft = np.asarray(smallest) - alpha * log_p[row]
        rows.append(batch["reward"][row] + config["gamma"] * batch["discount"][row] * soft)
    return np.stack(rows)


def quantile_losses(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return each row's loss: the sum over critics of the mean over pairs (equation 13)."""
    count = z.shape[2]
    losses = np.zeros(len(y))
    for one in z:
        for m in range(count):
            share, error = (2 * m + 1) / (2 * count), y - one[:, m : m + 1]
            small = np.abs(error) <= 1.0
            huber = np.where(small, 0.5 * error**2, np.abs(error) - 0.5)
            losses += np.mean(np.abs(share - (error < 0)) * huber, 1) / count
    return losses
