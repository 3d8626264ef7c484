"""Adam (Kingma & Ba 2015, algorithm 1)."""

from __future__ import annotations

import numpy as np

from oracles.pieces.leaves import Leaves, Prefix


def norm(gradient: np.ndarray) -> float:
    """Return the Euclidean length of a gradient."""
    return float(np.sqrt(np.sum(gradient**2)))


def clipped(gradient: np.ndarray, most: float) -> np.ndarray:
    """Return the gradient, shortened to a length of ``most`` if it is longer (Pascanu 2013)."""
    length = norm(gradient)
    return gradient * most / length if length > most else gradient


def direction(
    state: Leaves,
    optimiser: str,
    gradient: np.ndarray,
    epsilon: float = 1e-8,
    beta1: float = 0.9,
) -> np.ndarray:
    """Move the moments below ``optimiser`` and return m / (sqrt(v) + epsilon), bias-corrected."""
    first, second = f"{optimiser}.mu", f"{optimiser}.nu"
    state[f"{optimiser}.count"] = state[f"{optimiser}.count"] + 1
    time = state[f"{optimiser}.count"]
    m = beta1 * state.vector(first) + (1.0 - beta1) * gradient
    v = 0.999 * state.vector(second) + 0.001 * gradient**2
    state.put(first, m)
    state.put(second, v)
    return (m / (1.0 - beta1**time)) / (np.sqrt(v / (1.0 - 0.999**time)) + epsilon)


def descend(
    state: Leaves,
    prefix: Prefix,
    optimiser: str,
    gradient: np.ndarray,
    rate: float,
    **options: float,
) -> None:
    """Take one step of Adam down ``gradient`` with the parameters below ``prefix``."""
    step = rate * direction(state, optimiser, gradient, **options)
    state.put(prefix, state.vector(prefix) - step)
