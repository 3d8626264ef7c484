"""BBF (Schwarzer 2023): SPR without noise, AdamW, a horizon that changes, and renewed weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import dqn
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.q_learning import spr


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from stretches ``(batch, time, ...)``, and renew the networks where that is due."""

    def scores_of(net: str, obs: np.ndarray, role: str) -> np.ndarray:
        hidden = np.maximum(project(net, spr.latent(state, net, obs)), 0.0)
        value = perceptron(state, f"{net}.value", hidden)[:, None]
        advantage = perceptron(state, f"{net}.advantage", hidden)
        advantage = advantage.reshape(len(obs), -1, config["atoms"])
        return value + advantage - advantage.mean(1, keepdims=True)

    def project(net: str, z: np.ndarray) -> np.ndarray:
        return perceptron(state, f"{net}.projection", z)

    n_step, gamma = horizon(state, config)
    slope, metrics, samples = spr.found(
        state, batch, config | {"gamma": gamma}, (scores_of, project)
    )
    metrics |= {"value/n_step": n_step, "value/gamma": gamma}
    metrics["policy/epsilon"] = dqn.epsilon(state, config)
    descend(state, slope, config)
    left = state[".planned"] - state[".updates"]
    if state[".since"] >= config["reset_period"] and left >= config["reset_period"]:
        renew(state, config["shrink"], draws)
    return metrics, samples


def horizon(state: Leaves, config: dict) -> tuple[int, float]:
    """Return n and gamma so many updates after a renewal, by logarithms as in the authors' words:
    exponentially, gamma in its distance from 1."""
    share = min(float(state[".since"]) / config["horizon_updates"], 1.0)

    def between(first: float, last: float) -> float:
        return float(np.exp((1.0 - share) * np.log(first) + share * np.log(last)))

    n_step = round(between(config["n_step"], config["n_step_final"]))
    return n_step, 1.0 - between(1.0 - config["gamma_initial"], 1.0 - config["gamma"])


def descend(state: Leaves, slope: np.ndarray, config: dict) -> None:
    """Take a step of AdamW (Loshchilov 2019), whose decay spares biases, and move the target."""
    step = adam.direction(state, ".optimiser", slope, config["adam_eps"])
    matrices = np.concatenate(
        [np.full(state[path].size, state[path].ndim > 1) for path in state.under(".net")]
    )
    old = state.vector(".net")
    decayed = config["weight_decay"] * np.where(matrices, old, 0.0)
    state.put(".net", old - config["lr"] * (step + decayed))
    state.follow(".target", ".net", config["tau"])
    state[".updates"], state[".since"] = state[".updates"] + 1, state[".since"] + 1


def renew(state: Leaves, shrink: float, draws: dict) -> None:
    """Mix encoder and model with new weights, and replace all other layers and the moments."""
    for name, drawn in draws.items():
        net, part = name.split()
        place = f".{net}.{part}.layers" if part == "transition" else f".{net}.{part}"
        kept = shrink if part in ("psi", "transition") else 0.0
        for index, new in enumerate(drawn):
            for leaf, fresh in (("weight", new[1:]), ("bias", new[0])):
                path = f"{place}.layers[{index}].{leaf}"
                state[path] = kept * state[path] + (1.0 - kept) * fresh
    for path in state.under(".optimiser"):
        state[path] = np.zeros_like(state[path])
    state[".since"] = np.zeros_like(state[".since"])
