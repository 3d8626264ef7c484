"""Memories: a gated recurrent unit (Cho 2014), gate by gate."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron


def after(
    state: Leaves, net: str, hidden: np.ndarray, given: Any, begins: np.ndarray
) -> np.ndarray:
    """Return the memory of the network at ``net`` after an observation and what was done and earned
    before it, which is nothing where an episode ``begins``."""
    obs, action, reward = given
    if action.ndim == 1:
        choices = state[f"{net}.before.layers[0].weight"].shape[0] - obs.shape[-1] - 1
        action = np.eye(choices)[action.astype(int)]
    known = np.where(begins[:, None], 0.0, np.concatenate([action, reward[:, None]], -1))
    x = np.tanh(perceptron(state, f"{net}.before", np.concatenate([obs, known], -1)))
    width = hidden.shape[1]
    names = {"r": slice(0, width), "z": slice(width, 2 * width), "n": slice(2 * width, None)}
    own, new = (
        {
            gate: inputs @ state[f"{net}.memory.{part}.weight"][:, columns]
            + state[f"{net}.memory.{part}.bias"][columns]
            for gate, columns in names.items()
        }
        for part, inputs in (("hidden", hidden), ("inputs", x))
    )
    reset = 1.0 / (1.0 + np.exp(-(new["r"] + own["r"])))
    keep = 1.0 / (1.0 + np.exp(-(new["z"] + own["z"])))
    return (1.0 - keep) * np.tanh(new["n"] + reset * own["n"]) + keep * hidden
