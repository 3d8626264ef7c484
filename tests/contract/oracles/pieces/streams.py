"""What streaming learners have in common (Elsayed 2024): units, networks, traces and ObGD."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import normalisers
from oracles.pieces.leaves import Leaves

TRACE = ".optimiser.trace"


def row_of(batch: Any) -> dict[str, Any]:
    """Return the one row of a rollout of one step and one environment."""
    return {name: x[0, 0] for name, x in batch.items()}


def seen(state: Leaves, obs: np.ndarray) -> np.ndarray:
    """Return an observation in the units of those seen so far, which nothing cuts."""
    return normalisers.seen(state, obs, ".obs_statistics")


def count_successor(state: Leaves, row: dict, config: dict) -> None:
    """Count the observation that a row leads to."""
    if config["normalise_obs"]:
        rows = row["next_obs"][None][: int(row["mask"])]
        normalisers.count(state, ".obs_statistics.moments[0]", rows)


def scaled_reward(state: Leaves, row: dict, config: dict) -> float:
    """Count the discounted return up to a row; return its reward by the return's deviation."""
    if not config["normalise_reward"]:
        return float(row["reward"])
    running, moments = ".reward_statistics.running", ".reward_statistics.moments"
    if row["mask"]:
        total = config["gamma"] * state[running] + row["reward"]
        normalisers.count(state, moments, total)
        state[running] = np.zeros(1) if row["last"] else total
    else:
        normalisers.count(state, moments, np.zeros(0))
        state[running] = np.zeros(1)
    return float(row["reward"] / np.sqrt(state[f"{moments}.variance"] + 1e-8))


def outputs(state: Leaves, prefix: str, x: np.ndarray) -> np.ndarray:
    """Return a network's outputs: hidden layers are normalised, and leak a hundredth below 0."""
    depth = sum(1 for path in state.under(prefix) if path.endswith(".weight"))
    for index in range(depth):
        layer = f"{prefix}.layers[{index}]"
        x = x @ state[f"{layer}.weight"] + state[f"{layer}.bias"]
        if index < depth - 1:
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
            x = np.where(x > 0.0, x, 0.01 * x)
    return x


def obgd(
    state: Leaves, params: str, error: float, lr: float, *, kappa: float, trace: str = TRACE
) -> float:
    """Step along the trace (algorithm 3); return the step size."""
    z = state.vector(trace)
    bound = lr * kappa * max(abs(error), 1.0) * np.abs(z).sum()
    size = min(lr / bound, lr)
    state.put(params, state.vector(params) + size * error * z)
    return size


def share(row: dict) -> float:
    """Return by how much a trace counts after its row."""
    return float(row["discount"]) if row["mask"] and not row["last"] else 0.0


def fingerprint(row: dict, obs: str, allowed: str) -> int:
    """Return the hash of an observation: of each array, in the order of their names, the sum over
    words of murmur(word + murmur(place)); the hash of the arrays before is hashed again first."""
    total = 0
    arrays = [row[allowed].astype(np.int64)] if allowed in row else []
    arrays.append(row[obs].astype(np.float32).view(np.uint32))
    for words in arrays:
        mixed = sum(murmur(int(w) + murmur(i + 1)) for i, w in enumerate(words.ravel()))
        total = (murmur(total) + mixed) % 2**32
    return total


def murmur(word: int) -> int:
    """Return MurmurHash3's finaliser (Appleby 2011)."""
    word %= 2**32
    word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
    word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
    return word ^ word >> 16


def is_continued(state: Leaves, row: dict) -> bool:
    """Whether a row begins with the observation that the state waits for."""
    return int(state[".expected"]) == fingerprint(row, "obs", "allowed")


def expect_successor(state: Leaves, row: dict) -> None:
    """Wait for the observation that a row leads to."""
    state[".expected"] = np.asarray(float(fingerprint(row, "next_obs", "next_allowed")))
