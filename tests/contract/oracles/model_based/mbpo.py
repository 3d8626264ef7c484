"""MBPO (Janner 2019): SAC's update, and one of the models (Chua 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import sac
from oracles.pieces import adam, normalisers
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient

POLICY, MODEL = ".policy", ".model"


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions, whoever dreamt them: the policy is a whole state of SAC."""
    own = Leaves(
        (path.removeprefix(POLICY), leaf) for path, leaf in state.items() if path.startswith(POLICY)
    )
    found = sac.learn(own, batch, config, draws)
    state.update({POLICY + path: leaf for path, leaf in own.items()})
    return found


def learn_model(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Step every member down its mean surprise at rows that are not held out."""
    outcome = np.concatenate([batch["next_obs"] - batch["obs"], batch["reward"][:, None]], -1)
    normalisers.count(state, f"{MODEL}.seen.moments[0]", batch["obs"])
    normalisers.count(state, f"{MODEL}.made", outcome)
    scale = np.sqrt(state[f"{MODEL}.made.variance"] + 1e-8)
    wanted = (outcome - state[f"{MODEL}.made.mean"]) / scale
    action = batch["action"]
    if action.ndim == 1:
        choices = state[".policy.actor.net.layers[2].bias"].size
        action = np.eye(choices)[action.astype(int)]
    obs = normalisers.seen(state, batch["obs"], f"{MODEL}.seen", 10.0)
    x, held = np.concatenate([obs, action], -1), held_out(batch["place"], config["holdout"])
    members = range(config["members"])

    def losses() -> np.ndarray:
        every = [surprise(*foretold(state, x, i), wanted, batch["discount"]) for i in members]
        return np.array([each[~held].mean() for each in every])

    def loss() -> float:
        bounds = state[f"{MODEL}.nets.most"].sum() - state[f"{MODEL}.nets.least"].sum()
        return float(losses().sum() + 0.01 * bounds)

    errors = np.array([np.mean((foretold(state, x, i)[0] - wanted)[held] ** 2) for i in members])
    metrics = {"loss": float(losses().mean()), "error": float(errors.mean())}
    slope = gradient(loss, state, f"{MODEL}.nets")
    adam.descend(state, f"{MODEL}.nets", f"{MODEL}.optimiser", slope, config["model_lr"])
    old = state[f"{MODEL}.error"]
    state[f"{MODEL}.error"] = 0.95 * old + 0.05 * errors
    state[f"{MODEL}.updates"] = state[f"{MODEL}.updates"] + 1
    return metrics, {}


def held_out(place: np.ndarray, share: float) -> np.ndarray:
    """Return which places teach nothing: 24 bits of MurmurHash3's finaliser below a share of
    2^24."""
    word = place.astype(np.uint64)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor) % np.uint64(2**32)
    bits = (word ^ (word >> np.uint64(16))) >> np.uint64(8)
    return bits.astype(float) / 2**24 < share


def foretold(state: Leaves, x: np.ndarray, member: int) -> tuple[np.ndarray, ...]:
    """Return the mean, the variance between its bounds, and the chance of an end."""
    most, least = (state[f"{MODEL}.nets.{name}"][member] for name in ("most", "least"))
    out = perceptron(state, f"{MODEL}.nets.net", x, "silu", member)
    log_variance = most - np.log1p(np.exp(most - out[:, most.size : -1]))
    log_variance = least + np.log1p(np.exp(log_variance - least))
    return out[:, : most.size], np.exp(log_variance), 1.0 / (1.0 + np.exp(-out[:, -1]))


def surprise(
    mean: np.ndarray, variance: np.ndarray, end: np.ndarray, wanted: np.ndarray, discount: Any
) -> np.ndarray:
    """Return -log p of what happened, without the normal's constant (Chua 2018, eq. 1)."""
    normal = np.sum((wanted - mean) ** 2 / (2.0 * variance) + 0.5 * np.log(variance), -1)
    return normal - (1.0 - discount) * np.log(end) - discount * np.log(1.0 - end)
