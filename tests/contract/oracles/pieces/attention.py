"""A causal transformer of GPT-2's kind (Radford 2019), read from a state's leaves."""

from __future__ import annotations

import numpy as np

from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import gelu, layer_norm


def transformer(
    state: Leaves, prefix: str, x: np.ndarray, mask: np.ndarray, heads: int
) -> np.ndarray:
    """Return the outputs ``(batch, token, width)``: each token sees itself and those tokens before
    it where ``mask`` holds."""
    time = x.shape[1]
    before = np.tril(np.ones((time, time), bool))
    seen = (before[None] & mask[:, None, :]) | np.eye(time, dtype=bool)[None]
    layers = len(state[f"{prefix}.blocks.before.scale"])
    for layer in range(layers):
        block = {
            path.removeprefix(f"{prefix}.blocks."): state[path][layer]
            for path in state.under(f"{prefix}.blocks")
        }
        normal = layer_norm(x, block["before.scale"], block["before.shift"])
        x = x + linear(block, "out", attention(linear(block, "queries", normal), seen, heads))
        normal = layer_norm(x, block["between.scale"], block["between.shift"])
        x = x + linear(block, "down", gelu(linear(block, "up", normal)))
    return layer_norm(x, state[f"{prefix}.norm.scale"], state[f"{prefix}.norm.shift"])


def linear(block: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    """Return x W + b."""
    return x @ block[f"{name}.weight"] + block[f"{name}.bias"]


def attention(mixed: np.ndarray, seen: np.ndarray, heads: int) -> np.ndarray:
    """Return softmax(q k / sqrt(size)) v of every head, side by side (Vaswani 2017, eq. 1)."""
    queries, keys, values = (np.split(part, heads, -1) for part in np.split(mixed, 3, -1))
    found = []
    for q, k, v in zip(queries, keys, values, strict=True):
        scores = q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[-1])
        weights = np.where(seen, np.exp(scores), 0.0)
        found.append(weights / weights.sum(-1, keepdims=True) @ v)
    return np.concatenate(found, -1)
