"""Ten shapes of scores with their true means and, where a task would declare them, bounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

Random = np.random.Generator
Size = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Shape:
    """A distribution of scores."""

    name: str
    draw: Callable[[Random, Size], np.ndarray]
    mean: float
    bounds: tuple[float, float] | None = None


def _cap(share: float) -> Callable[[Random, Size], np.ndarray]:
    def draw(rng: Random, size: Size) -> np.ndarray:
        return np.where(rng.random(size) < share, rng.uniform(50.0, 450.0, size), 500.0)

    return draw


def _two(share: float, low: float, high: float, spread: float) -> Callable[..., np.ndarray]:
    """A share of runs around ``low``, the others around ``high``."""

    def draw(rng: Random, size: Size) -> np.ndarray:
        middle = np.where(rng.random(size) < share, low, high)
        return np.clip(rng.normal(middle, spread), 0.0, 500.0)

    return draw


SCALE = (0.0, 500.0)
SHAPES = (
    Shape("normal: N(300, 30)", lambda rng, size: rng.normal(300.0, 30.0, size), 300.0, SCALE),
    Shape("90 % at the cap 500, else U(50, 450)", _cap(0.1), 475.0, SCALE),
    Shape("80 % at the cap 500, else U(50, 450)", _cap(0.2), 450.0, SCALE),
    Shape(
        "500 - gamma(1, 60), cut at 0",
        lambda rng, size: np.maximum(500.0 - rng.gamma(1.0, 60.0, size), 0.0),
        440.0 + 60.0 * math.exp(-500.0 / 60.0),
        SCALE,
    ),
    Shape("uniform: U(0, 500)", lambda rng, size: rng.uniform(*SCALE, size), 250.0, SCALE),
    Shape("half N(200, 15), half N(400, 15)", _two(0.5, 200.0, 400.0, 15.0), 300.0, SCALE),
    Shape("70 % N(400, 15), 30 % N(150, 15)", _two(0.3, 150.0, 400.0, 15.0), 325.0, SCALE),
    Shape(
        "success rate 0.9",
        lambda rng, size: (rng.random(size) < 0.9).astype(float),
        0.9,
        (0.0, 1.0),
    ),
    Shape(
        "heavy tails: 300 + 30 t(2.5)",
        lambda rng, size: 300.0 + 30.0 * rng.standard_t(2.5, size),
        300.0,
    ),
    Shape("log-normal, sigma 1", lambda rng, size: rng.lognormal(0.0, 1.0, size), math.exp(0.5)),
)
