"""What a dataset is like: how good, how wide, how random, and how much is to be had by stitching.

Episodes are the units of every interval. Quality and coverage are TQ and SACo of Schweighofer et
al. 2022 (arXiv:2111.04714): the mean return between two references, and distinct state-action
pairs relative to a reference dataset.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from gymnasium import spaces as gym_spaces
from jaxtyping import Float

from sterling.data.cells import Cells
from sterling.data.dataset import Dataset
from sterling.data.relabel.vectors import alike
from sterling.data.returns import ahead
from sterling.data.spread import of_policy, of_world
from sterling.statistics import Estimate, estimate, table
from sterling.types import Mistake

GAMMA, HORIZON = 0.99, 100  # for continuations; what lies beyond counts for a third at most
MOST = 1_000_000  # rows looked at for crossings; more are thinned out by whole episodes


@dataclasses.dataclass(frozen=True)
class Description:
    """Figures of a dataset; returns are undiscounted sums of rewards."""

    returns: Estimate  # mean over episodes
    lengths: Estimate
    ended: float  # share of episodes that ended rather than were cut
    best: float  # mean return of the best tenth of the episodes
    upside: float  # square root of E[(G - mean)_+^2]: what to gain (Hong et al., ICLR 2023)
    sparse: float  # share of rows whose reward is the commonest one
    discrete: bool  # whether actions are choices
    reference: tuple[float, float] | None  # returns that count as 0 and 1
    quality: Estimate | None  # TQ; None without references
    pairs: int  # distinct state-action cells
    coverage: float | None  # SACo; None without a dataset to compare with
    policy: float | None  # randomness of actions at like observations, 0 to 1; an upper bound
    entropy: Estimate | None  # of the behaviour policy, nats a step; None without log_prob
    world: float | None  # share of repeated pairs whose outcome differs; None if too few repeat
    crossing: float  # share of rows in a cell that another episode visits too
    gain: float  # mean over those of what the best one has more from there, in units of the range


def describe(
    dataset: Dataset,
    beside: Dataset | None = None,
    reference: tuple[float, float] | None = None,
) -> Description:
    """Look at a dataset. ``beside``: the one that coverage is relative to (the paper takes the
    replay buffer of an online run). ``reference``: returns that count as 0 and 1; by default the
    dataset's own, or those of D4RL's table if it knows the environment."""
    if not dataset.rows:
        raise Mistake("the dataset has no rows; there is nothing to describe")
    check_reference(reference)
    if beside is not None:
        alike(dataset.obs_space, beside.obs_space, "obs", "observations")
        alike(dataset.action_space, beside.action_space, "action", "actions")
        _check_finite(beside)
    _check_finite(dataset)
    returns, ends = dataset.returns, reference or _reference(dataset)
    quality = None
    if ends is not None and ends[0] < ends[1]:
        quality = _mean((returns - ends[0]) / (ends[1] - ends[0]))
    above = np.maximum(returns - returns.mean(), 0.0)
    cells = Cells(beside or dataset)
    pairs = distinct(cells, dataset)
    crossing, gain = _stitching(cells, dataset)
    return Description(
        returns=_mean(returns),
        lengths=_mean(dataset.lengths.astype(float)),
        ended=float(dataset.ended.mean()),
        best=float(dataset.top(0.1).returns.mean()),
        upside=float(np.sqrt(np.mean(above**2))),
        sparse=_commonest(dataset),
        discrete=not isinstance(dataset.action_space, gym_spaces.Box),
        reference=ends,
        quality=quality,
        pairs=pairs,
        coverage=pairs / distinct(cells, beside) if beside is not None else None,
        policy=of_policy(dataset),
        entropy=_entropy(dataset),
        world=of_world(dataset),
        crossing=crossing,
        gain=gain,
    )


def _mean(values: Float[np.ndarray, "episode"]) -> Estimate:
    """With its usual interval; figures that happen to be 0 or 1 are no successes."""
    return estimate(values)


def check_reference(reference: tuple[float, float] | None) -> None:
    """Raises Mistake for reference scores of which the first is not the lower one."""
    if reference is not None and not reference[0] < reference[1]:
        raise Mistake(
            f"reference scores are the return that counts as 0 and a higher one that counts as 1; "
            f"got {reference[0]:g} and {reference[1]:g}"
        )


def _check_finite(dataset: Dataset) -> None:
    """Raises Mistake where what is looked at holds no number: cells and means would be nonsense."""
    aside = ("extra/", "info/")
    for block in dataset.blocks():
        for name, array in block.arrays.items():
            if name.startswith(aside) or array.dtype.kind != "f" or np.isfinite(array).all():
                continue
            file = dataset.path or "FILE"
            raise Mistake(
                f"{name} holds NaN or infinity; sterling data check {file} --fix OUT first"
            )


def distinct(cells: Cells, dataset: Dataset) -> int:
    """Distinct state-action cells of a dataset."""
    seen = np.zeros(0, np.uint64)
    for _, pair in cells.each(dataset):
        seen = np.union1d(seen, pair)
    return len(seen)


def to_go(dataset: Dataset) -> Float[np.ndarray, "row"]:
    """The return from every row to the end of its episode, discounted by ``GAMMA``; NaN where a
    cut less than ``HORIZON`` steps ahead hides the rest of it."""
    found = [np.zeros(0)]
    for block in dataset.blocks():
        for begin, length in zip(block.begins, block.lengths, strict=True):
            rows = slice(begin, begin + length)
            reward = block.arrays["reward"][rows].astype(np.float64)
            discount = block.arrays["discount"][rows].astype(np.float64)
            rest = ahead(reward, GAMMA, discount)
            if length and discount[-1] != 0:
                rest[-HORIZON:] = np.nan
            found.append(rest)
    return np.concatenate(found)


def _stitching(cells: Cells, dataset: Dataset) -> tuple[float, float]:
    """How often episodes meet, and how much more the best continuation from there brings."""
    thin = dataset[:: max(-(-dataset.rows // MOST), 1)]
    state = np.concatenate([obs for obs, _ in cells.each(thin)])
    ahead = to_go(thin)
    episode = np.repeat(np.arange(len(thin)), thin.lengths)
    _, cell = np.unique(state, return_inverse=True)
    count = int(cell.max()) + 1
    first, last = np.full(count, len(thin)), np.full(count, -1)
    np.minimum.at(first, cell, episode)
    np.maximum.at(last, cell, episode)
    met = (first != last)[cell]
    told = met & np.isfinite(ahead)
    width = float(np.nanmax(ahead) - np.nanmin(ahead)) if np.isfinite(ahead).any() else 0.0
    if not told.any() or not width:
        return float(met.mean()), 0.0
    best = np.full(count, -np.inf)
    np.maximum.at(best, cell[told], ahead[told])
    return float(met.mean()), float((best[cell[told]] - ahead[told]).mean() / width)


def _reference(dataset: Dataset) -> tuple[float, float] | None:
    """Returns that count as 0 and 1."""
    if dataset.facts.reference is not None:
        return dataset.facts.reference
    try:
        return table("d4rl").of(dataset.facts.environment) if dataset.facts.environment else None
    except Mistake:  # a task that the table does not know has no references
        return None


def _commonest(dataset: Dataset) -> float:
    seen: dict[float, int] = {}
    for block in dataset.blocks():
        values, counts = np.unique(block.arrays["reward"][:100_000], return_counts=True)
        top = np.argsort(-counts)[:100]
        for value, count in zip(values[top].tolist(), counts[top].tolist(), strict=True):
            seen[value] = seen.get(value, 0) + count
    looked = sum(min(block.rows, 100_000) for block in dataset.blocks())
    return max(seen.values(), default=0) / max(looked, 1)


def _entropy(dataset: Dataset) -> Estimate | None:
    if "extra/log_prob" not in dataset.columns:
        return None
    means = [
        -one.extras["log_prob"].mean(dtype=np.float64)
        for one in dataset[:: max(len(dataset) // 1000, 1)]
        if len(one)
    ]
    return _mean(np.array(means)) if np.isfinite(means).all() else None
