"""Returns and returns-to-go of a dataset's episodes, and probabilities of sampling each episode."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from sterling.data.dataset import Dataset
from sterling.data.episode_columns import BLOCK_ROWS, Block
from sterling.equations.returns import lowest_return
from sterling.lookup.name_suggestions import did_you_mean
from sterling.problem.agent_axis import TRUNCATED
from sterling.types import Log, Mistake

SAMPLINGS = ("uniform", "episodes", "return")
RETURN_TEMPERATURE = 0.1  # of the return-weighted sampling of episodes (Hong 2023, section 6)


def monte_carlo_returns(
    dataset: Dataset, gamma: float, beyond: float = 0.0, team: bool = False
) -> Float[np.ndarray, "row"]:
    """Return the logged return-to-go of every row, G_t = r_t + gamma d_t G_{t+1}, with the row's
    discount d_t, which is 0 where the task ended even if the log continues (OGBench's masks).

    After a truncation G is ``beyond``, and so it is of a ``team`` after a step that cuts off an
    agent while others go on.
    """
    found = [np.zeros(0, np.float32)]
    for block in dataset.blocks():
        reward, discount = (block.arrays[name].astype(float) for name in ("reward", "discount"))
        ends = np.cumsum(block.lengths)
        stops = set(ends.tolist()) | (_cut_rows(block) if team else set())
        bounds = [0, *sorted(stops - {0})]
        final = np.array(bounds[1:], int) - 1
        reward[final] += gamma * discount[final] * beyond
        for begin, end in itertools.pairwise(bounds):
            rows = slice(begin, end)
            found.append(discounted_returns(reward[rows], gamma, discount[rows]).astype(np.float32))
    return np.concatenate(found)


def _cut_rows(block: Block) -> set[int]:
    """Return the numbers of the rows after those that cut off an agent while others go on."""
    marks = block.arrays.get(f"obs/{TRUNCATED}")
    if marks is None:
        return set()
    cut = np.asarray(marks.astype(bool).any(-1))
    episode = np.repeat(np.arange(len(block.lengths)), block.lengths)
    after = np.arange(len(episode)) + episode + 1  # each row's next observation
    return set((np.flatnonzero(cut[after]) + 1).tolist())


def lowest_continuation(dataset: Dataset, gamma: float) -> float:
    """Return the lowest possible return after a truncation if no reward is below the log's
    minimum: that reward forever, or 0 if no reward is negative."""
    lowest = min(float(block.arrays["reward"].min(initial=0.0)) for block in dataset.blocks())
    return lowest_return(lowest, gamma)


def discounted_returns(
    reward: Float[np.ndarray, "row"], gamma: float, discount: Float[np.ndarray, "row"]
) -> Float[np.ndarray, "row"]:
    """Return the discounted sum of one episode's rewards from every row on; ``discount`` is the
    logged one (0 where it terminated), multiplied by ``gamma``."""
    if (discount[:-1] == 1.0).all():
        from scipy.signal import lfilter  # slow to import

        return lfilter([1.0], [1.0, -gamma], reward[::-1])[::-1].copy()
    found, rest = np.empty_like(reward), 0.0
    for row in range(len(reward) - 1, -1, -1):
        rest = found[row] = reward[row] + gamma * discount[row] * rest
    return found


def discount_products(dataset: Dataset) -> Float[np.ndarray, "episode"]:
    """Return the product of the discounts of every episode that has rows: 0 if it terminated."""
    found = []
    for block in dataset.blocks():
        ends = np.cumsum(block.lengths)
        parts = np.split(block.arrays["discount"].astype(np.float64), ends[:-1])
        found += [part.prod() for part in parts if len(part)]
    return np.array(found)


def steps_into_episode(dataset: Dataset) -> Int[np.ndarray, "row"]:
    """Return for every row its step within the episode, from 0."""
    first = np.repeat(np.cumsum(dataset.lengths) - dataset.lengths, dataset.lengths)
    return (np.arange(dataset.rows) - first).astype(np.int32)


def steps_to_episode_end(dataset: Dataset) -> Int[np.ndarray, "row"]:
    """Return for every row the number of steps to its episode's final observation, at least 1."""
    ends = np.repeat(np.cumsum(dataset.lengths), dataset.lengths)
    return (ends - np.arange(dataset.rows)).astype(np.int32)


def episode_probabilities(dataset: Dataset, sampling: str) -> Float[np.ndarray, "episode"] | None:
    """Return each episode's sampling probability; None if all rows are equally likely.

    ``uniform``: every row is equally likely. ``episodes``: every episode is equally likely.
    ``return``: episodes in proportion to exp(R / 0.1), where R is their return as a share of the
    log's range (Hong 2023, "Harnessing mixed offline reinforcement learning datasets via trajectory
    weighting", eq. 7). Raises Mistake for another word.
    """
    if sampling == "uniform":
        return None
    if sampling not in SAMPLINGS:
        near = did_you_mean(sampling, SAMPLINGS, f"use one of {', '.join(SAMPLINGS)}")
        raise Mistake(f"Unknown sampling {sampling!r}{near}")
    weight = (dataset.lengths > 0).astype(np.float64)
    if sampling == "return":
        low, high = dataset.returns.min(), dataset.returns.max()
        weight *= np.exp((dataset.returns - high) / max(high - low, 1e-9) / RETURN_TEMPERATURE)
    return weight / weight.sum()


def summarise_log(dataset: Dataset) -> Log:
    """Return the statistics of a dataset that an agent gets before it learns: moments of
    observations and rewards, the range of returns, the longest episode."""
    first: Any = None  # subtracted, because squares of large numbers lose small deviations
    moments: Any = None
    for begin in range(0, dataset.rows, BLOCK_ROWS):
        rows = dataset.transitions(np.arange(begin, min(begin + BLOCK_ROWS, dataset.rows)))
        numbers = jax.tree.map(lambda x: np.asarray(x, np.float64), (rows.obs, rows.reward))
        first = jax.tree.map(lambda x: x[0], numbers) if first is None else first
        sums = jax.tree.map(_offset_sums, numbers, first)
        moments = sums if moments is None else jax.tree.map(np.add, moments, sums)
    offset = jax.tree.map(lambda sums: sums[0] / dataset.rows, moments)
    mean = jax.tree.map(np.add, first, offset)
    deviation = jax.tree.map(
        lambda sums, offset: np.sqrt(np.maximum(sums[1] / dataset.rows - offset**2, 0)),
        moments,
        offset,
    )
    obs_std = jax.tree.map(lambda x: x.astype(np.float32), deviation[0])
    return Log(
        mean[0],
        obs_std,
        (float(mean[1]), float(deviation[1])),
        (float(dataset.returns.min()), float(dataset.returns.max())),
        int(dataset.lengths.max()),
    )


def _offset_sums(x: np.ndarray, first: Any) -> np.ndarray:
    """Return the sums of rows less ``first``, and of the squares of these."""
    return np.stack([(x - first).sum(0), np.square(x - first).sum(0)])
