"""Flat files: one array each of observations, actions, rewards..., episodes lying end to end.

They differ in how an episode's end is told and where its last observation is:

* with ``next_obs`` every row has its successor. An episode ends where the file says so, and also
  where the successor of a row is not the next row's observation: a reset that was not recorded
  (D4RL's replay sets lack some of their ``timeouts``).
* without it, the successor of a row is the next row's observation, and that of a cut episode's
  last row is unknown. That row is given up; its observation becomes the episode's last. (Taking
  the next row's instead would join two episodes; D4RL's ``qlearning_dataset`` drops the row too.)
  Where the world *ended* the successor is worth nothing and only its place is filled, by a copy.
* with ``lone`` last rows (OGBench) that is what the file means.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from jaxtyping import Bool, Int

from sterling.data import memory
from sterling.data.columns import BLOCK, Arrays, Block, Stream
from sterling.data.facts import Facts, Passport
from sterling.data.spaces import Space, extremes, guessed, is_seen
from sterling.types import Mistake

ROUNDING = 1e-5  # relative; successors are often kept in fewer digits
GUESSED = "the spaces were guessed from the numbers"
BOUNDED = "actions are bounded by the smallest and the largest that were seen, number by number"
UNCUT = "there are no timeouts: cuts are unknown; give --limit with their length"
UNREWARDED = "there are no rewards; they are zeros"
COPIED = "the last observation of episodes that ended is a copy of the one before"


@dataclasses.dataclass(frozen=True)
class Flat:
    """Arrays of N rows, in memory or in a file of HDF5 or npz."""

    obs: Any
    action: Any
    reward: Any
    discount: np.ndarray  # what the file says; 1 everywhere but at real ends
    last: Bool[np.ndarray, "row"]  # the last row of an episode
    next_obs: Any = None
    extras: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(checked(self.obs))
        if not count:
            raise Mistake("there are no rows")
        others = {"actions": self.action, "rewards": self.reward, "terminals": self.discount}
        others |= {"next observations": self.next_obs} if self.next_obs is not None else {}
        for name, array in others.items():
            if len(checked(array, single=name == "rewards")) != count:
                raise Mistake(f"there are {len(array)} {name} for {count} observations")
        self.check_memory(min(count, BLOCK))

    def check_memory(self, rows: int) -> None:
        """Raise Mistake where so many rows, which are read at once, are more than fits."""
        successors = [] if self.next_obs is None else [self.next_obs]
        parts = (self.obs, self.action, self.reward, *successors, *self.extras.values())
        memory.check(rows * sum(map(_row, parts)), f"one piece of {rows:,} rows")


def stream(
    flat: Flat, facts: Facts, passport: Passport | None = None, limit: int | None = None
) -> Stream:
    """Flat arrays as episodes; spaces are guessed where no passport came with the file."""
    last = flat.last.copy()
    if len(last):
        last[-1] = True
    if flat.next_obs is not None:
        unrecorded = _jumps(flat) & ~last
        last |= unrecorded
        if unrecorded.any():
            facts = facts.noted(
                f"{int(unrecorded.sum())} resets were not recorded and are cuts, the first after "
                f"row {int(np.argmax(unrecorded))}"
            )
    if limit:
        last = _limited(last, limit)
    ended = last & (flat.discount == 0)
    if flat.next_obs is None and ended.any():
        facts = facts.noted(COPIED)
    obs_space, action_space = _spaces(flat, passport)
    if passport is None:
        facts = assumed(facts, action_space)
    size = sum(
        len(array) * _row(array)
        for array in (flat.obs, flat.action, flat.reward, *flat.extras.values())
    )
    blocks = _shaped(_blocks(flat, last, ended, passport), action_space)
    known = passport.hash if passport and not limit else ""  # another cut, another content
    return Stream(obs_space, action_space, facts, blocks, size, known)


def assumed(facts: Facts, action_space: Space) -> Facts:
    """The facts with notes that the spaces, of which that of the actions is given, are guesses."""
    facts = facts.without(GUESSED).without(BOUNDED)
    return facts.noted(GUESSED, *([BOUNDED] if is_seen(action_space) else []))


def _row(array: Any) -> int:
    """Bytes of one row."""
    return int(np.prod(array.shape[1:], dtype=object)) * np.dtype(array.dtype).itemsize


def is_numbers(array: Any) -> bool:
    """Whether it holds real numbers or truths: no text, dates, complex numbers, Python objects."""
    return getattr(array, "dtype", np.dtype(object)).kind in "fiub"


def checked(array: Any, single: bool = False) -> Any:
    """Itself; raises Mistake where it holds no numbers, or not a ``single`` one per row."""
    if not is_numbers(array):
        kind = getattr(array, "dtype", type(array).__name__)
        raise Mistake(f"array {_name(array)!r} holds no real numbers but {kind}; save it as such")
    width = int(np.prod(array.shape[1:]))
    if single and width != 1:
        raise Mistake(f"array {_name(array)!r} has {width} numbers a row; it must have one")
    return array


def _name(array: Any) -> str:
    return getattr(array, "name", "").strip("/")


def extras(others: Mapping[str, Any], rows: int) -> tuple[dict[str, Any], list[str]]:
    """Those arrays that are numbers of every row, and notes: one that names the rest, if any."""
    found = {
        name: array
        for name, array in others.items()
        if is_numbers(array) and array.ndim and len(array) == rows
    }
    left = ", ".join(name for name in others if name not in found)
    return found, [f"left out, not numbers of every row: {left}"] if left else []


def truth(array: Any) -> Bool[np.ndarray, "row"]:
    """Flags that may be numbers and may be a column; raises Mistake where one is NaN."""
    flags = scalars(array)
    unknown = np.isnan(flags)
    if unknown.any():
        at = int(np.argmax(unknown))
        raise Mistake(f"array {_name(array)!r} is NaN at row {at}; write 0 or 1 there")
    return flags != 0


def scalars(array: Any) -> np.ndarray:
    """One number per row, that may be a column."""
    one = checked(array, single=True)
    size = 3 * len(one) * one.dtype.itemsize  # with what is made of it
    memory.check(size, f"array {_name(one)!r}")
    return np.asarray(one[:]).reshape(len(one))


def _jumps(flat: Flat) -> Bool[np.ndarray, "row"]:
    """Rows whose successor is not the next row's observation."""
    count = len(flat.obs)
    found = np.zeros(count, bool)
    for low in range(0, count - 1, BLOCK):
        high = min(low + BLOCK, count - 1)
        here, there = flat.next_obs[low:high], flat.obs[low + 1 : high + 1]
        found[low:high] = _differ(here, there).reshape(high - low, -1).any(1)
    return found


def _differ(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Where numbers are not the same, rounding aside; NaN is NaN."""
    differ = here != there
    if here.dtype.kind == "f" and differ.any():
        with np.errstate(invalid="ignore", over="ignore"):
            close = np.abs(here - there) <= ROUNDING * (1 + np.abs(here))
        differ &= ~close & ~(np.isnan(here) & np.isnan(there))
    return differ


def _limited(last: Bool[np.ndarray, "row"], limit: int) -> Bool[np.ndarray, "row"]:
    """The ends, with episodes longer than ``limit`` cut into pieces."""
    made, at = last.copy(), 0
    for end in np.flatnonzero(last).tolist():
        made[at + limit - 1 : end : limit] = True
        at = end + 1
    return made


def _spaces(flat: Flat, passport: Passport | None) -> tuple[Space, Space]:
    if passport is not None:
        return passport.obs_space, passport.action_space
    parts = (flat.action[at : at + BLOCK] for at in range(0, len(flat.action), BLOCK))
    return guessed("obs", flat.obs), guessed("action", flat.action, *extremes(parts))


def _shaped(blocks: Iterable[Block], action_space: Space) -> Iterator[Block]:
    """The blocks, a column of one choice per row as a row of choices, and truths as numbers."""
    for block in blocks:
        arrays = dict(block.arrays)
        if isinstance(action_space, Discrete):
            arrays["action"] = scalars(arrays["action"])
        if arrays["action"].dtype.kind == "b":
            arrays["action"] = arrays["action"].astype(np.int64)
        yield dataclasses.replace(block, arrays=arrays)


def _blocks(
    flat: Flat,
    last: Bool[np.ndarray, "row"],
    ended: Bool[np.ndarray, "row"],
    passport: Passport | None,
) -> Iterator[Block]:
    """Whole episodes, about ``BLOCK`` rows at a time."""
    stops = np.flatnonzero(last) + 1
    begins = np.concatenate([[0], stops[:-1]])
    at = number = 0
    while at < len(stops):
        until = max(int(np.searchsorted(stops, begins[at] + BLOCK, "right")), at + 1)
        low, high = int(begins[at]), int(stops[until - 1])
        block = _block(flat, low, stops[at:until] - 1 - low, ended[low:high])
        if passport is not None:
            sources = passport.sources_of(number, len(block.lengths))
            block = dataclasses.replace(block, sources=sources)
        number += len(block.lengths)
        at = until
        if len(block.lengths):
            yield block


def _block(
    flat: Flat, low: int, last: Int[np.ndarray, "episode"], ended: Bool[np.ndarray, "row"]
) -> Block:
    """Episodes whose last rows are ``last``, counted from row ``low`` of the file."""
    high = low + int(last[-1]) + 1
    flat.check_memory(high - low)
    read = {"obs": flat.obs, "action": flat.action, "reward": flat.reward}
    read |= {f"extra/{name}": array for name, array in flat.extras.items()}
    rows: Arrays = {name: np.asarray(array[low:high]) for name, array in read.items()}
    rows["reward"] = rows["reward"].reshape(high - low)
    rows["discount"] = flat.discount[low:high].astype(np.float32)
    obs = rows.pop("obs")
    if flat.next_obs is not None:
        after = np.asarray(flat.next_obs[low:high][last]).astype(obs.dtype, copy=False)
        seen = {"obs": np.insert(obs, last + 1, after, axis=0)}
        return _made(seen, rows, np.diff(last, prepend=-1))
    return complete({"obs": obs}, rows, last, ended[last])


def complete(
    obs: Arrays, rows: Arrays, last: Int[np.ndarray, "episode"], real: Bool[np.ndarray, "episode"]
) -> Block:
    """Episodes that lack their last observation: ``last`` are their last rows, and ``real`` says
    which of them ended there. Those keep that row and get an observation after it; a cut episode
    gives its last row up."""
    lengths = np.diff(last, prepend=-1) - ~real
    count = int(last[-1]) + 1
    kept = np.ones(count, bool)
    kept[last[~real]] = False
    obs = {name: np.insert(x, last[real] + 1, x[last[real]], axis=0) for name, x in obs.items()}
    rows = {name: array[kept] for name, array in rows.items()}
    some = lengths > 0  # a cut episode of one row is no experience
    if not some.all():
        slots = np.repeat(some, lengths + 1)
        obs = {name: x[slots] for name, x in obs.items()}
    return _made(obs, rows, lengths[some])


def _made(obs: Arrays, rows: Arrays, lengths: Int[np.ndarray, "episode"]) -> Block:
    sources = np.zeros(len(lengths), np.int32)
    return Block({**obs, **rows}, lengths.astype(np.int64), sources)
