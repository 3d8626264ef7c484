"""A language model of Qwen3's form, read from a state's leaves, and its answers' probabilities."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.distributions import entropy_of_choices, log_softmax
from oracles.pieces.leaves import Leaves, Prefix
from oracles.pieces.networks import mean

SIZE = 4  # numbers of a head


def rms(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return rows of unit root mean square, scaled (Zhang 2019, eq. 4)."""
    return x / np.sqrt(mean(x**2) + 1e-6) * scale


def rotated(x: np.ndarray) -> np.ndarray:
    """Return heads ``(batch, time, number)`` turned by their places (Su 2021, eq. 15): the pair of
    numbers i and i + half is a complex number, multiplied by e^(i place rate)."""
    half = x.shape[-1] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * turns(x.shape[1], half)
    return np.concatenate([turned.real, turned.imag], -1)


@functools.cache
def turns(places: int, half: int) -> np.ndarray:
    """Return e^(i place rate) of every place and pair."""
    rate = 10_000.0 ** (-np.arange(half) / half)
    return np.exp(1j * np.arange(places)[:, None] * rate)


def hidden(state: Leaves, prefix: str, ids: np.ndarray) -> np.ndarray:
    """Return what the last layer says after each token, ``(batch, time, width)``."""
    x, stack = state[f"{prefix}.embedding"][ids], f"{prefix}.stack"
    for layer in range(len(state[f"{stack}.blocks.before.scale"])):
        block = {
            path.removeprefix(f"{stack}.blocks."): state[path][layer]
            for path in state.under(f"{stack}.blocks")
        }
        x = x + attention(block, rms(x, block["before.scale"])) @ block["out.weight"]
        gate, passed = np.split(rms(x, block["between.scale"]) @ block["up.weight"], 2, -1)
        x = x + (gate / (1.0 + np.exp(-gate)) * passed) @ block["down.weight"]
    return rms(x, state[f"{stack}.norm.scale"])


def attention(block: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Return what the query heads find, side by side; they share one head of keys and values
    (Ainslie 2023)."""
    mixed = x @ block["queries.weight"]
    *queries, keys, values = np.split(mixed, mixed.shape[-1] // SIZE, -1)
    keys, time = rotated(rms(keys, block["of_keys.scale"])), x.shape[1]
    found = []
    for query in queries:
        turned = rotated(rms(query, block["of_queries.scale"]))
        scores = turned @ np.swapaxes(keys, 1, 2) / np.sqrt(SIZE)
        weights = np.exp(scores) * np.tril(np.ones((time, time)))
        found.append(weights / weights.sum(-1, keepdims=True) @ values)
    return np.concatenate(found, -1)


def log_prob(
    state: Leaves, prefix: str, ids: np.ndarray, temperature: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return log p of every token but the first, and the entropy of what it was chosen from."""
    scores = hidden(state, prefix, ids)[:, :-1] @ state[f"{prefix}.embedding"].T
    log_p = log_softmax(scores / temperature)
    return np.take_along_axis(log_p, ids[:, 1:, None], -1)[..., 0], entropy_of_choices(log_p)


def read(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the lines' tokens, and where those are that teach: in rows that count."""
    ids = np.concatenate([batch["obs"][:, :1], batch["action"]], 1)
    return ids, batch["mask"] & batch["valid"][:, None]


def descend(state: Leaves, prefix: Prefix, slope: np.ndarray, config: dict) -> dict[str, float]:
    """Take one step of AdamW (Loshchilov 2019) at the step size of this update, which rises over
    the first ones; return the gradient's length."""
    done = float(state[".updates"]) + 1.0
    rate = config["lr"] * min(done / config["rise"], 1.0)
    before = state.vector(prefix)
    adam.descend(state, prefix, ".optimiser", adam.clipped(slope, config["max_grad_norm"]), rate)
    state.put(prefix, state.vector(prefix) - rate * config["weight_decay"] * before)
    state[".updates"] = state[".updates"] + 1
    return {"loss/grad_norm": adam.norm(slope)}
