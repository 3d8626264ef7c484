"""The laws that scores are simulated from, with their true values; for either Python."""

from __future__ import annotations

import math

import numpy as np

ONE_TASK = (
    "normal",
    "log-normal",
    "log-normal, sigma 1/2",
    "ceiling",
    "success 0.5",
    "success 0.9",
)
MANY_TASKS = ("normal", "log-normal", "success 0.7")
SIZES = (3, 5, 10)


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


def true_value(law: str, what: str) -> float:
    """The mean, or the mean of the middle half, of the law itself."""
    if what == "mean":
        known = {
            "normal": 0.0,
            "log-normal": math.exp(0.5),
            "log-normal, sigma 1/2": math.exp(0.125),
            "ceiling": 500.0 - math.exp(0.5),
        }
        return known[law] if law in known else float(law.rsplit(maxsplit=1)[-1])
    sample = np.sort(draw(law, np.random.default_rng(99), (4_000_000,)))
    return float(sample[1_000_000:3_000_000].mean())


def scores_of(law: str, trial: int, shape: tuple[int, ...]) -> np.ndarray:
    """The scores of one trial; the same for everyone who is measured."""
    words = [trial, *shape, sum(map(ord, law))]
    return draw(law, np.random.default_rng(words), shape)
