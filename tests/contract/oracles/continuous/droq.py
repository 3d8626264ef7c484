"""DroQ (Hiraoka 2022, algorithm 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.continuous import redq
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import layer_norm


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; the draws of a forward pass say which units stay, as ``(member,
    layer, row, unit)``."""

    def values(critics: str, obs: Any, action: Any, members: Any, when: str) -> np.ndarray:
        x = np.concatenate([obs, action], -1)
        masks = draws["kept_" + when]
        return np.stack(
            [
                dropping(state, f"{critics}.nets", x, i, kept=masks[place], rate=config["dropout"])
                for place, i in enumerate(members)
            ]
        )

    return redq.learn_by(values, state, batch, config, draws)


def dropping(
    state: Leaves, prefix: str, x: np.ndarray, member: int, *, kept: np.ndarray, rate: float
) -> np.ndarray:
    """Return a member's values: linear, dropout, layer norm, ReLU (figure 1)."""
    for index, mask in enumerate(kept):
        weight, bias = (state[f"{prefix}.layers[{index}].{n}"][member] for n in ("weight", "bias"))
        x = (x @ weight + bias) * mask / (1.0 - rate)
        if f"{prefix}.norms[{index}].scale" in state:
            scale, shift = (
                state[f"{prefix}.norms[{index}].{n}"][member] for n in ("scale", "shift")
            )
            x = layer_norm(x, scale, shift)
        x = np.maximum(x, 0.0)
    last = f"{prefix}.layers[{len(kept)}]"
    return (x @ state[f"{last}.weight"][member] + state[f"{last}.bias"][member])[:, 0]
