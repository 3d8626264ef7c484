"""Rainbow (Hessel 2018): C51, double, dueling, with replay weights and noisy layers (Fortunato
2018, equations 9 to 11)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient
from oracles.q_learning import c51, qr_dqn


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws`` has the noise of each stream in each of three roles."""

    def noise_of(role: str) -> list[np.ndarray]:
        return [draws[f"{role} {stream}"] for stream in ("value", "advantage")]

    z, rows = c51.atoms(config), np.arange(len(batch["reward"]))
    following = c51.chances(logits(state, ".target", batch["next_obs"], config, noise_of("next")))
    chooser = c51.chances(logits(state, ".net", batch["next_obs"], config, noise_of("choice")))
    m = c51.projected(following[rows, qr_dqn.greedy(chooser @ z, batch)], batch, config)

    def scores() -> np.ndarray:
        return logits(state, ".net", batch["obs"], config, noise_of("now"))[rows, batch["action"]]

    slope = gradient(lambda: c51.loss(scores(), m, batch), state, ".net")
    metrics, samples = c51.told(scores(), m, batch, config)
    metrics["loss/grad_norm"] = adam.norm(slope)
    qr_dqn.step(state, slope, config)
    return metrics, samples


def logits(state: Leaves, net: str, obs: np.ndarray, config: dict, noise: list) -> np.ndarray:
    """Return the logits, ``(row, action, atom)`` (the dueling equation of page 3)."""
    value = noisy(state, f"{net}.value", obs, noise[0])
    advantage = noisy(state, f"{net}.advantage", obs, noise[1])
    advantage = advantage.reshape(len(obs), -1, config["atoms"])
    return value[:, None] + advantage - advantage.mean(1, keepdims=True)


def noisy(state: Leaves, prefix: str, x: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return a network's outputs; ``noise`` is of the inputs and outputs of each layer in turn."""
    noise = np.sign(noise) * np.sqrt(np.abs(noise))
    depth = sum(1 for path in state.under(f"{prefix}.mean") if path.endswith(".weight"))
    for index in range(depth):
        mean, deviation = (f"{prefix}.{kind}.layers[{index}]" for kind in ("mean", "deviation"))
        inputs, outputs = state[f"{mean}.weight"].shape
        into, out = noise[:inputs], noise[inputs : inputs + outputs]
        noise = noise[inputs + outputs :]
        weight = state[f"{mean}.weight"] + state[f"{deviation}.weight"] * np.outer(into, out)
        x = x @ weight + state[f"{mean}.bias"] + state[f"{deviation}.bias"] * out
        x = np.maximum(x, 0.0) if index < depth - 1 else x
    assert noise.size == 0
    return x
