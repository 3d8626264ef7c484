"""The single checks of a block of episodes, one function each; ``dataset_check`` runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from gymnasium import spaces as gym_spaces

from sterling.data import space_json
from sterling.data.dataset import Dataset
from sterling.data.episode_columns import Block, is_per_observation
from sterling.data.quality.dataset_findings import (
    CLIP_ACTIONS,
    DROP_EPISODE,
    DROP_STEPS,
    MOVE_INWARD,
    SPLIT_EPISODE,
    Finding,
    Severity,
)

EDGE_SHARE = 0.01  # share of action components exactly on a bound that gives a warning
BOUND_TOLERANCE = 1e-5  # relative to the range; an action this close outside is a rounding error
OUTSIDE_SPACE, OUTSIDE_BY_ROUNDING = (
    "lies outside the space",
    "lies outside the space by a rounding error",
)


def find_non_finite(dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
    """Find NaN, infinity and what float32 does not hold; report the first of each column in each
    episode."""
    for name, array in block.arrays.items():
        if array.dtype.kind != "f":
            continue
        # infos are not learned from, so they are not cast to 32 bits
        finite = np.isfinite if name.startswith("info/") else space_json.fits_float32
        bad = np.asarray(~finite(array).reshape(len(array), -1).all(1))
        for episode, step, count in first_bad_steps(block, name, bad):
            message = f"{name} holds NaN or infinity in float32 ({count} of its entries)"
            fix = "" if name.startswith("info/") else DROP_STEPS
            yield Finding("error", "nan", message, before + episode, step, fix)


def first_bad_steps(block: Block, name: str, bad: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield for each episode with bad entries: its number, the step of the first, and the count."""
    at = np.flatnonzero(bad)
    if not at.size:
        return
    each = block.lengths + is_per_observation(name)
    ends = np.cumsum(each)
    episode = np.searchsorted(ends, at, "right")
    numbers, first, counts = np.unique(episode, return_index=True, return_counts=True)
    for number, where, count in zip(numbers, at[first], counts, strict=True):
        yield int(number), int(where - (ends - each)[number]), int(count)


def find_outside_actions(dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
    """Find actions outside their space."""
    for name, part in space_json.column_spaces("action", dataset.action_space).items():
        for space, bad, word in entries_outside(part, block.arrays[name]):
            fix = CLIP_ACTIONS if isinstance(space, gym_spaces.Box) else DROP_STEPS
            for episode, step, count in first_bad_steps(block, name, bad):
                value = block.arrays[name][block.begins[episode] + step]
                shown = np.array2string(value, precision=4, threshold=6)
                message = f"{name} {shown} {word} ({count} of its actions)"
                severity: Severity = "warning" if word == OUTSIDE_BY_ROUNDING else "error"
                yield Finding(severity, "action", message, before + episode, step, fix)


def entries_outside(
    space: space_json.Space, array: np.ndarray
) -> Iterator[tuple[space_json.Space, np.ndarray, str]]:
    """Yield masks of the entries outside a space, each with its description; for boxes, entries
    outside only by rounding have a mask of their own."""
    if array.shape[1:] != tuple(space.shape or ()) or array.dtype.kind not in "fiub":
        return  # dataset_check reports wrong shapes and types
    axes = tuple(range(1, array.ndim))
    if isinstance(space, gym_spaces.Box):
        low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
        slack = BOUND_TOLERANCE * np.where(np.isfinite(high - low), high - low, 0)
        far = np.asarray(((array < low - slack) | (array > high + slack)).any(axes))
        yield space, far, OUTSIDE_SPACE
        yield (
            space,
            np.asarray(((array < low) | (array > high)).any(axes)) & ~far,
            OUTSIDE_BY_ROUNDING,
        )
        return
    start, count = np.zeros(1), np.full(1, 2)
    if isinstance(space, gym_spaces.Discrete):
        start, count = np.asarray(space.start), np.asarray(space.n)
    elif isinstance(space, gym_spaces.MultiDiscrete):
        start, count = np.asarray(space.start), space.nvec
    yield space, np.asarray(((array < start) | (array >= start + count)).any(axes)), OUTSIDE_SPACE


def find_outside_observations(dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
    """Find observations outside their space; for boxes only a warning, since that is often
    intended."""
    for name, part in space_json.column_spaces("obs", dataset.obs_space).items():
        for space, bad, word in entries_outside(part, block.arrays[name]):
            severity: Severity = "warning" if isinstance(space, gym_spaces.Box) else "error"
            for episode, step, count in first_bad_steps(block, name, bad):
                message = f"{name} {word} ({count} of its entries)"
                yield Finding(severity, "observation", message, before + episode, step)


def find_bad_discounts(dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
    """Find terminals inside episodes, discounts outside [0, 1] and impossible log-probabilities."""
    discount = block.arrays["discount"]
    wrong = (discount < 0) | (discount > 1)
    for episode, step, count in first_bad_steps(block, "discount", wrong):
        message = f"discount outside [0, 1] ({count} of its entries)"
        yield Finding("error", "terminal", message, before + episode, step)
    inside = discount == 0
    inside[(np.cumsum(block.lengths) - 1)[block.lengths > 0]] = False
    formats = [source.format for source in dataset.facts.sources]
    for episode, step, _ in first_bad_steps(block, "discount", inside):
        if formats[int(block.sources[episode])] == "ogbench":
            continue  # its masks mark where a task is done while the trajectory continues
        message = (
            f"the episode ended, but {int(block.lengths[episode]) - 1 - step} more steps follow"
        )
        yield Finding("error", "terminal", message, before + episode, step, SPLIT_EPISODE)
    log_prob = block.arrays.get("extra/log_prob")
    if log_prob is not None and isinstance(dataset.action_space, gym_spaces.Discrete):
        positive = np.asarray((log_prob > 1e-6).reshape(len(log_prob), -1).any(1))
        for episode, step, count in first_bad_steps(block, "extra/log_prob", positive):
            message = f"log_prob of a discrete action is above 0 ({count} of its entries)"
            yield Finding("error", "log_prob", message, before + episode, step)


def find_duplicates(block: Block, before: int, seen: dict[bytes, int]) -> Iterator[Finding]:
    """Find episodes with the same observations and actions as an earlier one; ``seen`` maps the
    hash of each episode so far to its number, and is extended."""
    names = [name for name in block.arrays if name.split("/")[0] in ("obs", "action")]
    for number in range(len(block.lengths)):
        one = block.cut(number, number + 1)
        if not one.rows:
            continue
        digest = hashlib.blake2b(digest_size=16)
        for name in names:
            digest.update(np.ascontiguousarray(one.arrays[name]).tobytes())
        first = seen.setdefault(digest.digest(), before + number)
        if first != before + number:
            message = f"it is the same as episode {first}"
            yield Finding("warning", "duplicate", message, before + number, fix=DROP_EPISODE)


class EdgeActions:
    """Count action components exactly on a bound, where a tanh policy has no finite log_prob."""

    def __init__(self, dataset: Dataset):
        self._parts = {
            name: part
            for name, part in space_json.column_spaces("action", dataset.action_space).items()
            if isinstance(part, gym_spaces.Box) and space_json.is_clippable(part)
        }
        self._at, self._all = dict.fromkeys(self._parts, 0), dict.fromkeys(self._parts, 0)
        self._first: dict[str, tuple[int, int]] = {}

    def add(self, block: Block, before: int) -> None:
        """Count a block of episodes."""
        for name, part in self._parts.items():
            array = block.arrays[name]
            if array.shape[1:] != part.shape:
                continue
            on = (array == part.low) | (array == part.high)
            self._at[name] += int(on.sum())
            self._all[name] += on.size
            if on.any() and name not in self._first:
                row = np.asarray(np.argmax(on.reshape(len(on), -1).any(1)))
                episode, step = block.where(row)
                self._first[name] = (before + int(episode), int(step))

    def findings(self) -> Iterator[Finding]:
        """Yield a finding for every part of the action with many components on a bound."""
        for name in self._first:
            share = self._at[name] / self._all[name]
            if share >= EDGE_SHARE:
                message = (
                    f"{share:.1%} of the components of {name} lie exactly on a bound, where a "
                    "tanh policy's log-probability is infinite"
                )
                yield Finding("warning", "edge", message, *self._first[name], MOVE_INWARD)


class ConstantReward:
    """Find rewards without information: all the same number, and all episodes of one length."""

    def __init__(self, dataset: Dataset) -> None:
        self._low, self._high = np.inf, -np.inf
        self._one_length = bool((dataset.lengths == dataset.lengths[:1]).all())

    def add(self, reward: np.ndarray) -> None:
        """Include more rewards."""
        if reward.size:
            self._low = min(self._low, float(np.min(reward)))
            self._high = max(self._high, float(np.max(reward)))

    def findings(self) -> Iterator[Finding]:
        """Yield one finding if the rewards carry no information."""
        if self._low == self._high and (self._one_length or self._low == 0):
            message = (
                f"every reward is {self._low:g}: to learn from rewards, label them first (sterling "
                "data relabel)"
            )
            yield Finding("warning", "reward", message)
