"""QRL (Wang 2023, as in OGBench: an interval quasimetric, and a policy that climbs a model)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from oracles.goals.gcbc import asked, log_prob
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn distances, multiplier, model and policy, all from the state before the update."""
    action, far, act = batch["action"], batch["policy_goal"], ".nets.policy"
    frozen = state.frozen()
    multiplier = float(np.exp(frozen[".nets.log_multiplier"]))

    def phi(x: np.ndarray, of: Leaves = state) -> np.ndarray:
        return perceptron(of, ".nets.distance.phi", x, config["activation"])

    def after(x: np.ndarray, action: np.ndarray, of: Leaves = state) -> np.ndarray:
        seen = asked(x, action)
        return x + perceptron(of, ".nets.distance.model", seen, config["activation"])

    def between(x: np.ndarray, y: np.ndarray, of: Leaves = state) -> np.ndarray:
        share = 1.0 / (1.0 + np.exp(-of[".nets.distance.share"]))
        pieces = [union(a, b, config["intervals"]) for a, b in zip(x, y, strict=True)]
        return np.array([share * np.mean(c) + (1.0 - share) * np.max(c) for c in pieces])

    def away() -> np.ndarray:
        return between(phi(batch["obs"]), phi(batch["goal"]))

    def apart() -> float:
        return float(np.mean(100.0 * np.log1p(np.exp(5.0 - away() / 100.0))))

    def excess() -> float:
        step = between(phi(batch["obs"]), phi(batch["next_obs"]))
        return float(np.mean(np.maximum(step - 1.0, 0.0) ** 2))

    def model() -> float:
        now, later = phi(batch["obs"]), phi(batch["next_obs"])
        guess = after(now, action)
        return float(np.mean(between(later, guess) + between(guess, later)) / 2.0)

    def mean() -> np.ndarray:
        return perceptron(state, f"{act}.net", asked(batch["obs"], far), config["activation"])

    def left() -> np.ndarray:
        guess = after(phi(batch["obs"], frozen), np.clip(mean(), -1.0, 1.0), frozen)
        return between(guess, phi(far, frozen), frozen)

    scale = float(np.mean(np.abs(left()))) + 1e-6

    def of_policy() -> float:
        imitated = log_prob(state, act, asked(batch["obs"], far), action, config)
        return float(np.mean(left() / scale - config["alpha"] * imitated))

    fixed = excess()

    def whole() -> float:
        risen = float(np.exp(state[".nets.log_multiplier"])) * (config["eps"] - fixed)
        return apart() + multiplier * excess() + risen + model() + of_policy()

    metrics = {
        "loss/value": apart(),
        "loss/model": model(),
        "loss/policy": of_policy(),
        "value/v": -float(np.mean(away())),
        "constraint/excess": fixed,
        "constraint/multiplier": multiplier,
        "policy/distance": float(np.mean(((mean() - action) ** 2).sum(-1))),
    }
    slope = gradient(whole, state, ".nets")
    adam.descend(state, ".nets", ".optimiser", slope, config["lr"])
    return metrics, {}


def union(x: np.ndarray, y: np.ndarray, intervals: int) -> list[float]:
    """Return for each component how much of the line is in any interval from x_i up to y_i."""
    lengths = []
    for begins, ends in zip(x.reshape(-1, intervals), y.reshape(-1, intervals), strict=True):
        marks, length = np.sort(np.concatenate([begins, ends])), 0.0
        for low, high in itertools.pairwise(marks):
            middle = 0.5 * (low + high)
            length += (high - low) * any((begins < middle) & (middle < ends))
        lengths.append(length)
    return lengths
