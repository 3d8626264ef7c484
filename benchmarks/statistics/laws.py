"""The laws that scores are simulated from; for either Python."""

from __future__ import annotations

import numpy as np


def draw(law: str, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores; "ceiling" is a log-normal hanging down from a largest return."""
    if law == "normal":
        return rng.normal(0.0, 1.0, shape)
    if law == "log-normal":
        return rng.lognormal(0.0, 1.0, shape)
    if law == "log-normal, sigma 1/2":
        return rng.lognormal(0.0, 0.5, shape)
    if law == "ceiling":
        return 500.0 - rng.lognormal(0.0, 1.0, shape)
    return (rng.random(shape) < float(law.rsplit(maxsplit=1)[-1])).astype(float)
