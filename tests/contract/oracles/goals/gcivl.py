"""GCIVL (Park 2023, eq. 4, with the policy of OGBench)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.goals.gcbc import asked, log_prob
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn values without actions, then a policy from their differences, all from the state before
    the update."""

    def both(prefix: str, obs: np.ndarray, goal: np.ndarray) -> np.ndarray:
        return pair(state, prefix, asked(obs, goal), config)

    old = [both(".target", batch[name], batch["goal"]) for name in ("obs", "next_obs")]

    def of_values() -> float:
        return value_loss(both(".nets.values", batch["obs"], batch["goal"]), *old, batch, config)

    far = batch["policy_goal"]
    before, after = (both(".nets.values", batch[name], far).mean(0) for name in ("obs", "next_obs"))
    weight = np.minimum(np.exp(config["beta"] * (after - before)), config["most"])

    def of_policy() -> float:
        each = log_prob(state, ".nets.policy", asked(batch["obs"], far), batch["action"], config)
        return -float(np.mean(weight * each))

    metrics = {"loss/v": of_values(), "loss/policy": of_policy()}
    metrics["value/v"] = float(both(".nets.values", batch["obs"], batch["goal"]).mean())
    metrics["policy/weight"] = float(np.mean(weight))
    slope = gradient(lambda: of_values() + of_policy(), state, ".nets")
    adam.descend(state, ".nets", ".optimiser", slope, config["lr"])
    state.follow(".target", ".nets.values", config["tau"])
    return metrics, {}


def pair(state: Leaves, prefix: str, seen: np.ndarray, config: dict) -> np.ndarray:
    """Return the outputs of two networks, ``(2, row)``."""
    names = f"{prefix}.first", f"{prefix}.second"
    return np.stack([perceptron(state, n, seen, config["activation"])[:, 0] for n in names])


def value_loss(
    now: np.ndarray, old: np.ndarray, later: np.ndarray, batch: Any, config: dict
) -> float:
    """Return the sum of both values' expectile losses, whose side one advantage decides."""
    discount = config["gamma"] * batch["discount"]
    advantage = batch["reward"] + discount * later.min(0) - old.mean(0)
    side = np.where(advantage < 0.0, 1.0 - config["expectile"], config["expectile"])
    error = batch["reward"] + discount * later - now
    return float(np.mean(side * (error**2).sum(0)))
