"""What to look for in a block of episodes, one function each; see ``check.py``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from gymnasium import spaces as gym_spaces

from sterling.data import spaces
from sterling.data.columns import Block, has_successors
from sterling.data.dataset import Dataset
from sterling.data.findings import CLIP, DROP, INWARD, LEAVE_OUT, SPLIT, Finding, Severity

EDGE = 0.01  # share of action components exactly on a bound from which it is worth a word
ROUNDING = 1e-5  # relative; an action this little outside is a rounding error
OUTSIDE, BARELY = "lies outside the space", "lies outside the space by a rounding error"


def values(dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
    """NaN and infinity, the first of each column in each episode."""
    for name, array in block.arrays.items():
        if array.dtype.kind != "f":
            continue
        bad = np.asarray(~np.isfinite(array).reshape(len(array), -1).all(1))
        for episode, step, count in places(block, name, bad):
            said = f"{name} holds NaN or infinity ({count} of its entries)"
            fix = "" if name.startswith("info/") else LEAVE_OUT
            yield Finding("error", "nan", said, before + episode, step, fix)


def places(block: Block, name: str, bad: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Episode, step of the first bad entry, and how many there are."""
    at = np.flatnonzero(bad)
    if not at.size:
        return
    each = block.lengths + has_successors(name)
    ends = np.cumsum(each)
    episode = np.searchsorted(ends, at, "right")
    numbers, first, counts = np.unique(episode, return_index=True, return_counts=True)
    for number, where, count in zip(numbers, at[first], counts, strict=True):
        yield int(number), int(where - (ends - each)[number]), int(count)


def actions(dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
    """Actions outside of their space."""
    for name, part in spaces.parts("action", dataset.action_space).items():
        for space, bad, word in outside(part, block.arrays[name]):
            fix = CLIP if isinstance(space, gym_spaces.Box) else LEAVE_OUT
            for episode, step, count in places(block, name, bad):
                value = block.arrays[name][block.begins[episode] + step]
                said = f"{name} {np.array2string(value, precision=4, threshold=6)} {word} ({count})"
                severity: Severity = "warning" if word == BARELY else "error"
                yield Finding(severity, "action", said, before + episode, step, fix)


def outside(
    space: spaces.Space, array: np.ndarray
) -> Iterator[tuple[spaces.Space, np.ndarray, str]]:
    """Entries outside a space, those that are so only by rounding apart."""
    if array.shape[1:] != tuple(space.shape or ()) or array.dtype.kind not in "fiub":
        return  # said elsewhere
    axes = tuple(range(1, array.ndim))
    if isinstance(space, gym_spaces.Box):
        low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
        slack = ROUNDING * np.where(np.isfinite(high - low), high - low, 0)
        far = np.asarray(((array < low - slack) | (array > high + slack)).any(axes))
        yield space, far, OUTSIDE
        yield space, np.asarray(((array < low) | (array > high)).any(axes)) & ~far, BARELY
        return
    start, count = np.zeros(1), np.full(1, 2)
    if isinstance(space, gym_spaces.Discrete):
        start, count = np.asarray(space.start), np.asarray(space.n)
    elif isinstance(space, gym_spaces.MultiDiscrete):
        start, count = np.asarray(space.start), space.nvec
    yield space, np.asarray(((array < start) | (array >= start + count)).any(axes)), OUTSIDE


def observations(dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
    """Observations outside of their space; of bounded boxes that is often meant so."""
    for name, part in spaces.parts("obs", dataset.obs_space).items():
        for space, bad, word in outside(part, block.arrays[name]):
            severity: Severity = "warning" if isinstance(space, gym_spaces.Box) else "error"
            for episode, step, count in places(block, name, bad):
                said = f"{name} {word} ({count} of its entries)"
                yield Finding(severity, "observation", said, before + episode, step)


def discounts(dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
    """Ends in the middle, discounts that are none, log-probabilities that cannot be."""
    discount = block.arrays["discount"]
    wrong = (discount < 0) | (discount > 1)
    for episode, step, count in places(block, "discount", wrong):
        said = f"discount outside [0, 1] ({count})"
        yield Finding("error", "terminal", said, before + episode, step)
    inside = discount == 0
    inside[(np.cumsum(block.lengths) - 1)[block.lengths > 0]] = False
    formats = [source.format for source in dataset.facts.sources]
    for episode, step, _ in places(block, "discount", inside):
        if formats[int(block.sources[episode])] == "ogbench":
            continue  # its masks say where a task is done, and the trajectory goes on
        said = f"the world ended, but {int(block.lengths[episode]) - 1 - step} more steps follow"
        yield Finding("error", "terminal", said, before + episode, step, SPLIT)
    log_prob = block.arrays.get("extra/log_prob")
    if log_prob is not None and isinstance(dataset.action_space, gym_spaces.Discrete):
        positive = np.asarray((log_prob > 1e-6).reshape(len(log_prob), -1).any(1))
        for episode, step, count in places(block, "extra/log_prob", positive):
            said = f"log_prob of a choice is above 0 ({count})"
            yield Finding("error", "log_prob", said, before + episode, step)


def duplicates(block: Block, before: int, seen: dict[bytes, int]) -> Iterator[Finding]:
    """Episodes whose observations and actions were there before; ``seen`` remembers them."""
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
            said = f"the same as episode {first}"
            yield Finding("warning", "duplicate", said, before + number, fix=DROP)


class Edges:
    """Action components exactly on a bound: tanh policies give them no finite log-probability."""

    def __init__(self, dataset: Dataset):
        self._parts = {
            name: part
            for name, part in spaces.parts("action", dataset.action_space).items()
            if isinstance(part, gym_spaces.Box) and spaces.has_edges(part)
        }
        self._at, self._all = dict.fromkeys(self._parts, 0), dict.fromkeys(self._parts, 0)
        self._first: dict[str, tuple[int, int]] = {}

    def add(self, block: Block, before: int) -> None:
        """Count in some episodes."""
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
        """A line for every part that has many."""
        for name in self._first:
            share = self._at[name] / self._all[name]
            if share >= EDGE:
                said = (
                    f"{share:.1%} of the components of {name} lie exactly on a bound, where a "
                    "tanh policy's log-probability is infinite"
                )
                yield Finding("warning", "edge", said, *self._first[name], INWARD)


class Constant:
    """Whether rewards tell nothing: all the same number, and all episodes of one length."""

    def __init__(self, dataset: Dataset) -> None:
        self._low, self._high = np.inf, -np.inf
        self._one_length = bool((dataset.lengths == dataset.lengths[:1]).all())

    def add(self, reward: np.ndarray) -> None:
        """Take in some rewards."""
        if reward.size:
            self._low = min(self._low, float(np.min(reward)))
            self._high = max(self._high, float(np.max(reward)))

    def findings(self) -> Iterator[Finding]:
        """One line, if so."""
        if self._low == self._high and (self._one_length or self._low == 0):
            said = f"every reward is {self._low:g}: label it before learning from rewards"
            yield Finding("warning", "reward", said)
