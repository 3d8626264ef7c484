"""Decision transformer (Chen 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam, normalisers
from oracles.pieces.attention import transformer
from oracles.pieces.distributions import log_softmax, of_choice
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import layer_norm, perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from stretches ``(batch, time, ...)`` (Chen 2021, algorithm 1), by AdamW."""
    obs = normalisers.seen(state, batch["obs"], ".normaliser")
    wanted = batch["monte_carlo"][..., None] / state[".scale"]
    logged, mask = batch["action"], batch["mask"]
    if logged.ndim == 2:
        choices = state[".nets.head.layers[0].bias"].size
        logged = np.eye(choices)[logged]

    def loss() -> float:
        outputs = model(state, wanted, obs, logged, batch, heads=config["heads"])[mask]
        if batch["action"].ndim == 2:
            return -float(np.mean(of_choice(log_softmax(outputs), batch["action"][mask])))
        return float(np.mean((np.tanh(outputs) - logged[mask]) ** 2))

    before, slope = loss(), gradient(loss, state, ".nets")
    metrics = {"loss/policy": before, "loss/grad_norm": adam.norm(slope)}
    state[".updates"] = state[".updates"] + 1
    rate = config["lr"] * min(float(state[".updates"]) / config["rise"], 1.0)
    weights = state.vector(".nets")
    adam.descend(state, ".nets", ".optimiser", adam.clipped(slope, config["max_grad_norm"]), rate)
    state.put(".nets", state.vector(".nets") - rate * config["weight_decay"] * weights)
    return metrics, {}


def model(
    state: Leaves,
    wanted: np.ndarray,
    obs: np.ndarray,
    action: np.ndarray,
    batch: Any,
    *,
    heads: int,
) -> np.ndarray:
    """Return W h_t for every step ``(batch, time, output)``, h_t read off the token of s_t."""
    places = state[".nets.of_time"]
    place = places[np.minimum(batch["time"], len(places) - 1)]
    parts = [
        perceptron(state, f".nets.{name}", x) + place
        for name, x in (("of_return", wanted), ("of_obs", obs), ("of_action", action))
    ]
    count, time = batch["mask"].shape
    tokens = np.zeros((count, 3 * time, place.shape[-1]))
    for kind, part in enumerate(parts):
        tokens[:, kind::3] = part
    tokens = layer_norm(tokens, state[".nets.norm.scale"], state[".nets.norm.shift"])
    heard = transformer(state, ".nets.stack", tokens, np.repeat(batch["mask"], 3, 1), heads)
    return perceptron(state, ".nets.head", heard[:, 1::3])
