"""Describe a dataset: quality, coverage, randomness, and what stitching episodes could gain.

Every interval is over episodes. Quality and coverage are TQ and SACo of Schweighofer et al. 2022
(arXiv:2111.04714): the mean return on a scale between two reference returns, and the number of
distinct state-action pairs relative to a reference dataset.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from gymnasium import spaces as gym_spaces
from jaxtyping import Float

from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import check_reference_scores
from sterling.data.description.behaviour_randomness import policy_randomness, world_randomness
from sterling.data.description.state_cells import Discretiser
from sterling.data.episode_returns import discounted_returns
from sterling.data.relabel.episode_vectors import check_same_spaces
from sterling.statistics import Estimate, estimate, table
from sterling.types import Mistake

GAMMA, HORIZON = 0.99, 100  # of returns-to-go; beyond the horizon lies at most a third of them
MAX_CROSSING_ROWS = (
    1_000_000  # rows examined for crossings; of larger datasets every k-th episode is used
)


@dataclasses.dataclass(frozen=True)
class Description:
    """Statistics of a dataset; returns are undiscounted sums of rewards."""

    returns: Estimate  # mean over episodes
    lengths: Estimate
    ended: float  # share of episodes that terminated; the others were truncated
    best: float  # mean return of the best tenth of the episodes
    upside: float  # square root of E[(G - mean)_+^2]: potential gain (Hong et al., ICLR 2023)
    sparse: float  # share of rows with the most common reward
    discrete: bool  # whether the action space is not a box
    reference: tuple[float, float] | None  # returns that count as 0 and 1
    quality: Estimate | None  # TQ; None without references
    pairs: int  # number of distinct state-action cells
    coverage: float | None  # SACo; None without a dataset to compare with
    policy: float | None  # randomness of actions at similar observations, 0 to 1; an upper bound
    entropy: Estimate | None  # of the behaviour policy, nats per step; None without log_prob
    world: float | None  # share of repeated pairs whose outcome differs; None if too few repeat
    crossing: float  # share of rows in a state cell that another episode visits too
    gain: float  # mean, over those rows, of the best return-to-go minus the own, over its range


def describe(
    dataset: Dataset,
    beside: Dataset | None = None,
    reference: tuple[float, float] | None = None,
) -> Description:
    """Compute the statistics of a dataset. ``beside``: the dataset that coverage is relative to
    (the paper uses the replay buffer of an online run). ``reference``: the returns that count as 0
    and 1; by default the dataset's own, or those of D4RL's table if it has the environment."""
    if not dataset.rows:
        raise Mistake("The dataset has no rows. Give a dataset with at least one step.")
    check_reference_scores(reference)
    if beside is not None:
        check_same_spaces(dataset.obs_space, beside.obs_space, "obs", "observations")
        check_same_spaces(dataset.action_space, beside.action_space, "action", "actions")
        _check_finite(beside)
    _check_finite(dataset)
    returns, ends = dataset.returns, reference or _reference_scores(dataset)
    quality = None
    if ends is not None and ends[0] < ends[1]:
        quality = _mean_estimate((returns - ends[0]) / (ends[1] - ends[0]))
    above = np.maximum(returns - returns.mean(), 0.0)
    cells = Discretiser(beside or dataset)
    pairs = count_distinct_pairs(cells, dataset)
    crossing, gain = _stitching_potential(cells, dataset)
    return Description(
        returns=_mean_estimate(returns),
        lengths=_mean_estimate(dataset.lengths.astype(float)),
        ended=float(dataset.ended.mean()),
        best=float(dataset.top(0.1).returns.mean()),
        upside=float(np.sqrt(np.mean(above**2))),
        sparse=_commonest_reward_share(dataset),
        discrete=not isinstance(dataset.action_space, gym_spaces.Box),
        reference=ends,
        quality=quality,
        pairs=pairs,
        coverage=pairs / count_distinct_pairs(cells, beside) if beside is not None else None,
        policy=policy_randomness(dataset),
        entropy=_policy_entropy(dataset),
        world=world_randomness(dataset),
        crossing=crossing,
        gain=gain,
    )


def _mean_estimate(values: Float[np.ndarray, "episode"]) -> Estimate:
    """Return the mean and its interval. Values of 0 and 1 are not treated as successes, because
    no bounds are declared."""
    return estimate(values)


def _check_finite(dataset: Dataset) -> None:
    """Raise Mistake if a column that is examined holds NaN or infinity: cells and means would be
    meaningless."""
    aside = ("extra/", "info/")
    for block in dataset.blocks():
        for name, array in block.arrays.items():
            if name.startswith(aside) or array.dtype.kind != "f" or np.isfinite(array).all():
                continue
            file = dataset.path or "FILE"
            raise Mistake(
                f"Column {name!r} holds NaN or infinity. Repair the dataset first: sterling data "
                f"check {file} --fix OUT"
            )


def count_distinct_pairs(cells: Discretiser, dataset: Dataset) -> int:
    """Return the number of distinct state-action cells of a dataset."""
    seen = np.zeros(0, np.uint64)
    for _, pair in cells.cells_by_block(dataset):
        seen = np.union1d(seen, pair)
    return len(seen)


def returns_to_go(dataset: Dataset) -> Float[np.ndarray, "row"]:
    """Return the return-to-go of every row, discounted by ``GAMMA``; NaN in the last ``HORIZON``
    rows of a truncated episode, whose continuation is unknown."""
    found = [np.zeros(0)]
    for block in dataset.blocks():
        for begin, length in zip(block.begins, block.lengths, strict=True):
            rows = slice(begin, begin + length)
            reward = block.arrays["reward"][rows].astype(np.float64)
            discount = block.arrays["discount"][rows].astype(np.float64)
            rest = discounted_returns(reward, GAMMA, discount)
            if length and discount[-1] != 0:
                rest[-HORIZON:] = np.nan
            found.append(rest)
    return np.concatenate(found)


def _stitching_potential(cells: Discretiser, dataset: Dataset) -> tuple[float, float]:
    """Return the share of rows in a state cell that several episodes visit, and the mean gain of
    continuing from there as the best of those episodes did, as a share of the range of returns."""
    thin = dataset[:: max(-(-dataset.rows // MAX_CROSSING_ROWS), 1)]
    state = np.concatenate([obs for obs, _ in cells.cells_by_block(thin)])
    ahead = returns_to_go(thin)
    episode = np.repeat(np.arange(len(thin)), thin.lengths)
    _, cell = np.unique(state, return_inverse=True)
    count = int(cell.max()) + 1
    first, last = np.full(count, len(thin)), np.full(count, -1)
    np.minimum.at(first, cell, episode)
    np.maximum.at(last, cell, episode)
    met = (first != last)[cell]
    known = met & np.isfinite(ahead)
    width = float(np.nanmax(ahead) - np.nanmin(ahead)) if np.isfinite(ahead).any() else 0.0
    if not known.any() or not width:
        return float(met.mean()), 0.0
    best = np.full(count, -np.inf)
    np.maximum.at(best, cell[known], ahead[known])
    return float(met.mean()), float((best[cell[known]] - ahead[known]).mean() / width)


def _reference_scores(dataset: Dataset) -> tuple[float, float] | None:
    """Return the returns that count as 0 and 1: the dataset's own, D4RL's, or None."""
    if dataset.facts.reference is not None:
        return dataset.facts.reference
    try:
        return (
            table("d4rl").references(dataset.facts.environment)
            if dataset.facts.environment
            else None
        )
    except Mistake:  # the table does not have this task
        return None


def _commonest_reward_share(dataset: Dataset) -> float:
    seen: dict[float, int] = {}
    for block in dataset.blocks():
        values, counts = np.unique(block.arrays["reward"][:100_000], return_counts=True)
        top = np.argsort(-counts)[:100]
        for value, count in zip(values[top].tolist(), counts[top].tolist(), strict=True):
            seen[value] = seen.get(value, 0) + count
    looked = sum(min(block.rows, 100_000) for block in dataset.blocks())
    return max(seen.values(), default=0) / max(looked, 1)


def _policy_entropy(dataset: Dataset) -> Estimate | None:
    if "extra/log_prob" not in dataset.columns:
        return None
    means = [
        -one.extras["log_prob"].mean(dtype=np.float64)
        for one in dataset[:: max(len(dataset) // 1000, 1)]
        if len(one)
    ]
    return _mean_estimate(np.array(means)) if np.isfinite(means).all() else None
