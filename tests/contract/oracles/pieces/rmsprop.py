"""RMSprop (Tieleman & Hinton 2012) as A2C has it (Mnih 2016, eqs. 8 and 9)."""

from __future__ import annotations

import numpy as np

from oracles.pieces.leaves import Leaves, Prefix


def descend(
    state: Leaves,
    prefix: Prefix,
    optimiser: str,
    gradient: np.ndarray,
    *,
    rate: float,
    decay: float,
) -> None:
    """Take one step down ``gradient``: over the root of its average square, plus 1e-5."""
    average = decay * state.vector(f"{optimiser}.nu") + (1.0 - decay) * gradient**2
    state.put(f"{optimiser}.nu", average)
    state.put(prefix, state.vector(prefix) - rate * gradient / (np.sqrt(average) + 1e-5))
