"""Rectified Adam (Liu 2020, algorithm 2), with the authors' code's change at rho = 5."""

from __future__ import annotations

import numpy as np

from oracles.pieces.leaves import Leaves, Prefix


def descend(
    state: Leaves, prefix: Prefix, optimiser: str, gradient: np.ndarray, rate: float
) -> None:
    """Take one step down ``gradient`` with the parameters below ``prefix``."""
    first, second = f"{optimiser}.mu", f"{optimiser}.nu"
    state[f"{optimiser}.count"] = state[f"{optimiser}.count"] + 1
    time = float(state[f"{optimiser}.count"])
    m = 0.9 * state.vector(first) + 0.1 * gradient
    v = 0.999 * state.vector(second) + 0.001 * gradient**2
    state.put(first, m)
    state.put(second, v)
    step = m / (1.0 - 0.9**time)
    most = 2.0 / (1.0 - 0.999) - 1.0
    rho = most - 2.0 * time * 0.999**time / (1.0 - 0.999**time)
    if rho >= 5.0:
        variance = (rho - 4.0) * (rho - 2.0) * most / ((most - 4.0) * (most - 2.0) * rho)
        step = np.sqrt(variance) * step / (np.sqrt(v / (1.0 - 0.999**time)) + 1e-8)
    state.put(prefix, state.vector(prefix) - rate * step)
