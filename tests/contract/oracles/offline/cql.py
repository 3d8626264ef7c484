"""CQL(H) (Kumar 2020) and Cal-QL (Nakamoto 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.offline.iql import normalised
from oracles.online import sac
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import twins, twins_of_choices
from oracles.pieces.slopes import gradient

MOST = 1e6  # of the multiplier


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions. ``draws["uniform"]`` are actions ``(sample, row, number)``,
    ``draws["policy"]`` and ``draws["successor"]`` standard normal numbers of that shape."""
    batch = normalised(state, batch)
    alpha = float(np.exp(state[".log_alpha"])) if config["backup_entropy"] else 0.0
    following, _ = sac.value(state, ".target", batch, "next_", alpha, noise=draws["next"])
    y = batch["reward"] + config["gamma"] * batch["discount"] * following
    drawn = None if batch["action"].ndim == 1 else proposals(state, batch, draws)
    metrics, samples = critics(state, batch, config, y, drawn)
    metrics |= sac.actor_and_temperature(state, batch, config, draws["now"], share=0.1)
    if config["target_gap"] is not None:
        wide = metrics["value/gap"] - config["target_gap"]

        def loss() -> float:
            return -float(np.exp(state[".log_penalty"])) * wide

        slope = gradient(loss, state, ".log_penalty")
        adam.descend(state, ".log_penalty", ".optimisers[3]", slope, config["lr"])
        state[".log_penalty"] = np.minimum(state[".log_penalty"], np.log(MOST))
    state.follow(".target", ".critics", config["tau"])
    return metrics, samples


def proposals(state: Leaves, batch: Any, draws: dict) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return actions and their log-densities: uniform ones, the policy's in s and in s'."""
    uniform = draws["uniform"]
    density = np.full(uniform.shape[:2], np.log(0.5 ** uniform.shape[-1]))
    found = [(uniform, density)]
    for name, when in (("policy", ""), ("successor", "next_")):
        each = [sac.sample(state, batch[when + "obs"], noise) for noise in draws[name]]
        found.append((np.stack([a for a, _ in each]), np.stack([p for _, p in each])))
    return found


def critics(
    state: Leaves, batch: Any, config: dict, y: np.ndarray, drawn: Any
) -> tuple[dict, dict]:
    """Step the critics towards ``y`` and down their gaps."""
    held = config["target_gap"] is not None
    weight = float(np.exp(state[".log_penalty"])) if held else config["penalty"]

    def gap() -> float:
        q = twins(state, ".critics", batch["obs"], batch["action"])
        soft = (
            of_choices(state, batch, config)
            if drawn is None
            else of_samples(state, batch, config, drawn)
        )
        return float(np.mean(soft - q))  # over both critics

    def loss() -> float:
        q = twins(state, ".critics", batch["obs"], batch["action"])
        squares = float(np.mean(batch["weight"] * np.sum((q - y) ** 2, 0)))
        return 0.5 * squares + weight * gap()

    q = twins(state, ".critics", batch["obs"], batch["action"])
    metrics = {"loss/value": loss(), "value/q": float(np.mean(q[0])), "value/gap": gap()}
    slope = gradient(loss, state, ".critics")
    adam.descend(state, ".critics", ".optimisers[0]", slope, config["lr"])
    return metrics, {"td_error": np.mean(np.abs(q - y), 0)}


def of_choices(state: Leaves, batch: Any, config: dict) -> np.ndarray:
    """Return log sum_a exp Q_i(s, a), ``(2, row)``."""
    q = twins_of_choices(state, ".critics", batch["obs"])
    if config["calibrated"]:
        q = np.maximum(q, batch["monte_carlo"][None, :, None])
    if "allowed" in batch:
        q = np.where(batch["allowed"], q, -np.inf)
    return np.log(np.sum(np.exp(q), -1))


def of_samples(state: Leaves, batch: Any, config: dict, drawn: Any) -> np.ndarray:
    """Return log int exp Q_i(s, a) da by importance sampling, ``(2, row)`` (Kumar 2020, app. F)."""
    terms = []
    for kind, (actions, density) in enumerate(drawn):
        for action, log_density in zip(actions, density, strict=True):
            q = twins(state, ".critics", batch["obs"], action)
            if config["calibrated"] and kind > 0:
                q = np.maximum(q, batch["monte_carlo"])
            terms.append(np.exp(q - log_density))
    return np.log(np.mean(terms, 0))
