"""What episodes came to: returns row by row, and how often each episode should be learned from."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from sterling.data.columns import BLOCK
from sterling.data.dataset import Dataset
from sterling.naming import hint
from sterling.types import Log, Mistake

SAMPLINGS = ("uniform", "episodes", "return")
TEMPERATURE = 0.1  # of the weights of episodes by return (Hong 2023, section 6)


def monte_carlo(dataset: Dataset, gamma: float, beyond: float = 0.0) -> Float[np.ndarray, "row"]:
    """Of every row, the return to its episode's end as it was lived: G_t = r_t + gamma d_t G_{t+1}
    with the row's discount d_t, 0 where the task ended though the log goes on (OGBench's masks).

    An episode that was cut counts up to its cut, and what follows there as ``beyond``.
    """
    found = []
    for block in dataset.blocks():
        reward, discount = (block.arrays[name].astype(float) for name in ("reward", "discount"))
        ends = np.cumsum(block.lengths)
        final = ends[block.lengths > 0] - 1
        reward[final] += gamma * discount[final] * beyond
        for begin, end in zip(ends - block.lengths, ends, strict=True):
            rows = slice(begin, end)
            found.append(ahead(reward[rows], gamma, discount[rows]).astype(np.float32))
    return np.concatenate(found)


def worst(dataset: Dataset, gamma: float) -> float:
    """The least that may follow a cut if rewards are never below the log's: the smallest of them
    for ever, or 0 where none is negative."""
    lowest = min(float(block.arrays["reward"].min(initial=0.0)) for block in dataset.blocks())
    return lowest / max(1.0 - gamma, 1e-6)


def ahead(
    reward: Float[np.ndarray, "row"], gamma: float, discount: Float[np.ndarray, "row"]
) -> Float[np.ndarray, "row"]:
    """The discounted sum of an episode's rewards from every row on; ``discount`` as in a log."""
    if (discount[:-1] == 1.0).all():
        from scipy.signal import lfilter  # slow to import

        return lfilter([1.0], [1.0, -gamma], reward[::-1])[::-1].copy()
    found, rest = np.empty_like(reward), 0.0
    for row in range(len(reward) - 1, -1, -1):
        rest = found[row] = reward[row] + gamma * discount[row] * rest
    return found


def survival(dataset: Dataset) -> Float[np.ndarray, "episode"]:
    """Of every episode that has rows, the product of its discounts: 0 where its task ended."""
    found = []
    for block in dataset.blocks():
        ends = np.cumsum(block.lengths)
        parts = np.split(block.arrays["discount"].astype(np.float64), ends[:-1])
        found += [part.prod() for part in parts if len(part)]
    return np.array(found)


def times(dataset: Dataset) -> Int[np.ndarray, "row"]:
    """Of every row, the steps from its episode's beginning."""
    first = np.repeat(np.cumsum(dataset.lengths) - dataset.lengths, dataset.lengths)
    return (np.arange(dataset.rows) - first).astype(np.int32)


def shares(dataset: Dataset, sampling: str) -> Float[np.ndarray, "episode"] | None:
    """Each episode's probability to be drawn from; None where all rows are equally likely.

    ``uniform``: all rows alike. ``episodes``: all episodes alike. ``return``: episodes in
    proportion to exp(R / 0.1), R their return as a share of the log's range (Hong 2023,
    "Harnessing mixed offline reinforcement learning datasets via trajectory weighting", eq. 7).
    Raises Mistake for another word.
    """
    if sampling == "uniform":
        return None
    if sampling not in SAMPLINGS:
        near = hint(sampling, SAMPLINGS, f"there are {', '.join(SAMPLINGS)}")
        raise Mistake(f"rows cannot be drawn by {sampling!r}{near}")
    weight = (dataset.lengths > 0).astype(np.float64)
    if sampling == "return":
        low, high = dataset.returns.min(), dataset.returns.max()
        weight *= np.exp((dataset.returns - high) / max(high - low, 1e-9) / TEMPERATURE)
    return weight / weight.sum()


def summary(dataset: Dataset) -> Log:
    """What an agent is told of a log before it learns from it."""
    moments: Any = None
    for begin in range(0, dataset.rows, BLOCK):
        rows = dataset.transitions(np.arange(begin, min(begin + BLOCK, dataset.rows)))
        numbers = jax.tree.map(lambda x: np.asarray(x, np.float64), (rows.obs, rows.reward))
        sums = jax.tree.map(lambda x: np.stack([x.sum(0), np.square(x).sum(0)]), numbers)
        moments = sums if moments is None else jax.tree.map(np.add, moments, sums)
    mean = jax.tree.map(lambda sums: sums[0] / dataset.rows, moments)
    deviation = jax.tree.map(
        lambda sums: np.sqrt(np.maximum(sums[1] / dataset.rows - (sums[0] / dataset.rows) ** 2, 0)),
        moments,
    )
    obs_mean, obs_std = (
        jax.tree.map(lambda x: x.astype(np.float32), each[0]) for each in (mean, deviation)
    )
    return Log(
        obs_mean,
        obs_std,
        (float(mean[1]), float(deviation[1])),
        (float(dataset.returns.min()), float(dataset.returns.max())),
        int(dataset.lengths.max()),
    )
