"""Gradients from their definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oracles.pieces.leaves import Leaves, Prefix

STEP = 1e-5  # errors are about STEP^2 of the third derivative and 1e-16 / STEP of the loss


def gradient(loss: Callable[[], float], state: Leaves, prefix: Prefix) -> np.ndarray:
    """Return the central differences of ``loss()`` in every number below ``prefix``.

    ``loss`` must read these numbers from ``state`` each time, and nothing else may depend on them:
    whatever is a constant in the equation is computed before.
    """
    slopes = []
    for path in state.under(prefix):
        leaf = state[path]
        for place in np.ndindex(leaf.shape):
            kept = leaf[place]
            leaf[place] = kept + STEP
            above = loss()
            leaf[place] = kept - STEP
            slopes.append((above - loss()) / (2.0 * STEP))
            leaf[place] = kept
    return np.array(slopes)
