"""Pairs of score distributions whose tendencies are equal, P(A > B) = 1/2, in many shapes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Law = Callable[[np.random.Generator, int], np.ndarray]


def steady(rng: np.random.Generator, n: int) -> np.ndarray:
    """A learner that varies little."""
    return rng.normal(800.0, 20.0, n)


def noisy(rng: np.random.Generator, n: int) -> np.ndarray:
    """Ten times its spread."""
    return rng.normal(800.0, 200.0, n)


def wider(rng: np.random.Generator, n: int) -> np.ndarray:
    """Three times its spread."""
    return rng.normal(800.0, 60.0, n)


def two_modes(rng: np.random.Generator, n: int) -> np.ndarray:
    """Half of the runs above every steady one, half below: the worst shape that is known."""
    return np.where(rng.random(n) < 0.5, 600.0, 1000.0) + rng.normal(0.0, 30.0, n)


def heavy(rng: np.random.Generator, n: int) -> np.ndarray:
    """Student's t of 2.5 degrees of freedom."""
    return 800.0 + 50.0 * rng.standard_t(2.5, n)


def skewed(rng: np.random.Generator, n: int) -> np.ndarray:
    """Log-normal, sigma 1, median 800."""
    return 600.0 + 200.0 * rng.lognormal(0.0, 1.0, n)


def mirrored(rng: np.random.Generator, n: int) -> np.ndarray:
    """The same hanging down from 1000."""
    return 1000.0 - 200.0 * rng.lognormal(0.0, 1.0, n)


def exponential(rng: np.random.Generator, n: int) -> np.ndarray:
    """Exponential with mean 100, from 700 on."""
    return 700.0 + rng.exponential(100.0, n)


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    """As spread as the exponential."""
    return rng.normal(800.0, 100.0, n)


def rates(rng: np.random.Generator, n: int) -> np.ndarray:
    """Success rates of 10 episodes, one success in two: many ties."""
    return rng.binomial(10, 0.5, n) / 10.0


def split_rates(rng: np.random.Generator, n: int) -> np.ndarray:
    """Success rates of 10 episodes of runs that learned (0.8) or did not (0.2)."""
    return rng.binomial(10, np.where(rng.random(n) < 0.5, 0.2, 0.8)) / 10.0


def below_cap(rng: np.random.Generator, n: int) -> np.ndarray:
    """Steady, a little below the cap of 500."""
    return rng.normal(1250.0 / 3.0, 5.0, n)


def capped(rng: np.random.Generator, n: int) -> np.ndarray:
    """Four in ten at the cap of 500, the others anywhere below."""
    return np.where(rng.random(n) < 0.4, 500.0, rng.uniform(0.0, 500.0, n))


def deep_failures(rng: np.random.Generator, n: int) -> np.ndarray:
    """Eight in ten at the cap of 500, two far below."""
    return np.where(rng.random(n) < 0.8, 500.0, rng.normal(50.0, 10.0, n))


def shallow_failures(rng: np.random.Generator, n: int) -> np.ndarray:
    """Three in four at the cap of 500, one in four a little below."""
    return np.where(rng.random(n) < 0.75, 500.0, rng.normal(450.0, 10.0, n))


def collapsing(rng: np.random.Generator, n: int) -> np.ndarray:
    """Seven in ten at 1000, three in ten at 333; mean 800."""
    return np.where(rng.random(n) < 0.7, 1000.0, 1000.0 / 3.0) + rng.normal(0.0, 30.0, n)


EQUAL: dict[str, tuple[Law, Law]] = {
    "steady, three times as spread": (steady, wider),
    "steady, ten times as spread": (steady, noisy),
    "steady, half above and half below": (steady, two_modes),
    "steady, heavy tails": (steady, heavy),
    "steady, skewed": (steady, skewed),
    "skewed up, skewed down": (skewed, mirrored),
    "normal, exponential": (normal, exponential),
    "rates, split rates (ties)": (rates, split_rates),
    "below a cap, at it or far below": (below_cap, capped),
    "deep failures, shallow failures (ties)": (deep_failures, shallow_failures),
    "log-normal twice": (skewed, skewed),
    "collapsing twice": (collapsing, collapsing),
}
FAMILIES: dict[str, tuple[Law, ...]] = {
    "steady, spread, heavy": (steady, noisy, heavy),
    "steady, two modes, two modes": (steady, two_modes, two_modes),
    "log-normal three times": (skewed, skewed, skewed),
    "steady, spread, two modes, heavy": (steady, noisy, two_modes, heavy),
    "steady, two modes three times": (steady, two_modes, two_modes, two_modes),
    "log-normal four times": (skewed, skewed, skewed, skewed),
}


def shift(first: Law, second: Law) -> float:
    """What to add to the second for P(first > second) = 1/2: the median difference, 2 million."""
    if first is second or first is rates or first is deep_failures or first is below_cap:
        return 0.0  # so by symmetry, or by construction
    rng = np.random.default_rng(7)
    return float(np.median(first(rng, 2_000_000) - second(rng, 2_000_000)))


def rarely_failing(rng: np.random.Generator, n: int) -> np.ndarray:
    """Eight in ten at 1000, two in ten at 0; mean 800."""
    return np.where(rng.random(n) < 0.8, 1000.0, 0.0) + rng.normal(0.0, 30.0, n)


def at_cap(rng: np.random.Generator, n: int) -> np.ndarray:
    """Eight in ten at exactly 1000, the others from 0 up to nothing: mean 800."""
    return np.where(rng.random(n) < 0.8, 1000.0, 0.0)


def skewed_mean(rng: np.random.Generator, n: int) -> np.ndarray:
    """Log-normal, sigma 1, mean 800."""
    return 600.0 + 200.0 * rng.lognormal(-0.5, 1.0, n)


# Means of 800 both; on [0, 2000], which no score but one in thousands leaves (it is cut there).
MEANS: dict[str, tuple[Law, Law]] = {
    "steady, ten times as spread": (steady, noisy),
    "steady, half above and half below": (steady, two_modes),
    "steady, heavy tails": (steady, heavy),
    "steady, skewed": (steady, skewed_mean),
    "steady, 70 % above and 30 % collapsed": (steady, collapsing),
    "steady, 80 % above and 20 % at zero": (steady, rarely_failing),
    "steady, 80 % at a cap and 20 % at zero": (steady, at_cap),
    "collapsing twice": (collapsing, collapsing),
}
