"""Running moments, and observations in their units."""

from __future__ import annotations

import numpy as np

from oracles.pieces.leaves import Leaves


def seen(state: Leaves, obs: np.ndarray, prefix: str, most: float = np.inf) -> np.ndarray:
    """Return observations less their mean, divided by their deviation and cut at ``most``; as they
    are where the state has no moments at ``prefix``."""
    if f"{prefix}.moments[0].mean" not in state:
        return obs
    mean = mean_of(state, f"{prefix}.moments[0]")
    variance = state[f"{prefix}.moments[0].variance"]
    return np.clip((obs - mean) / np.sqrt(variance + 1e-8), -most, most)


def count(state: Leaves, prefix: str, rows: np.ndarray) -> None:
    """Count ``rows`` into the moments at ``prefix``: the mean and variance of all rows so far."""
    old_mean, old_variance = mean_of(state, prefix), state[f"{prefix}.variance"]
    old = state[f"{prefix}.count"]
    total = old + len(rows)
    mean = (old * old_mean + rows.sum(0)) / total
    square = (old * (old_variance + old_mean**2) + (rows**2).sum(0)) / total
    state[f"{prefix}.mean"] = mean
    state[f"{prefix}.remainder"] = np.zeros_like(mean)  # of float64 nothing is rounded off
    state[f"{prefix}.variance"] = square - mean**2
    state[f"{prefix}.count"] = np.asarray(total, float)


def mean_of(state: Leaves, prefix: str) -> np.ndarray:
    """Return the mean of the moments at ``prefix``, with what its float32 rounds off."""
    return state[f"{prefix}.mean"] + state[f"{prefix}.remainder"]
