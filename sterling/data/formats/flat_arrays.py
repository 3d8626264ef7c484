"""Turn flat files into episodes: one array each of observations, actions, rewards and so on.

Episodes lie end to end in these arrays. Files differ in how they mark the end of an episode, and
in where its last observation is:

* With ``next_obs`` every row has its successor. An episode ends where the file says so, and also
  where the successor of a row is not the next row's observation: a reset that was not recorded
  (D4RL's replay sets lack some of their ``timeouts``).
* Without it, the successor of a row is the next row's observation, and the successor of a
  truncated episode's last row is unknown. That row is dropped, and its observation becomes the
  episode's last. (Taking the next row's observation would join two episodes; D4RL's
  ``qlearning_dataset`` drops the row too.) Where an episode *terminated*, its successor has no
  value, and a copy of the last observation takes its place.
* OGBench's files without successors end every trajectory with a row that is only an observation,
  so dropping that row is what the file means.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from jaxtyping import Bool, Int

from sterling.data import available_memory
from sterling.data.dataset_metadata import Facts, Metadata
from sterling.data.episode_columns import BLOCK_ROWS, Arrays, Block, Stream
from sterling.data.space_json import Space, finite_extremes, guess_space, is_bounded_by_data
from sterling.types import Mistake

SUCCESSOR_TOLERANCE = 1e-5  # relative; successors are often stored with fewer digits
GUESSED_SPACES_NOTE = "the spaces were guessed from the numbers"
GUESSED_BOUNDS_NOTE = (
    "actions are bounded by the smallest and the largest that were seen, number by number"
)
NO_TIMEOUTS_NOTE = (
    "there are no timeouts: truncations are unknown; pass --limit with the time limit"
)
NO_REWARDS_NOTE = "there are no rewards; they are set to zero"
COPIED_LAST_NOTE = "the last observation of terminated episodes is a copy of the one before"


@dataclasses.dataclass(frozen=True)
class FlatArrays:
    """Arrays of N rows, in memory or in a file of HDF5 or npz."""

    obs: Any
    action: Any
    reward: Any
    discount: np.ndarray  # as in the file; 1 except where an episode terminated
    last: Bool[np.ndarray, "row"]  # the last row of an episode
    next_obs: Any = None
    extras: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(require_numbers(self.obs))
        if not count:
            raise Mistake("The file has no rows. Give one with at least one step.")
        others = {"actions": self.action, "rewards": self.reward, "terminals": self.discount}
        others |= {"next observations": self.next_obs} if self.next_obs is not None else {}
        for name, array in others.items():
            if len(require_numbers(array, single=name == "rewards")) != count:
                raise Mistake(
                    f"The file has {len(array)} {name} for {count} observations. Restore it, or "
                    "write one for each observation."
                )
        self.check_memory(min(count, BLOCK_ROWS))

    def check_memory(self, rows: int) -> None:
        """Raise Mistake if ``rows`` rows, which are read at once, do not fit into memory."""
        successors = [] if self.next_obs is None else [self.next_obs]
        parts = (self.obs, self.action, self.reward, *successors, *self.extras.values())
        available_memory.check_fits(
            rows * sum(map(_row_bytes, parts)), f"One piece of {rows:,} rows"
        )


def episode_stream(
    flat: FlatArrays, facts: Facts, metadata: Metadata | None = None, limit: int | None = None
) -> Stream:
    """Split flat arrays into episodes; spaces are guessed unless the file has our metadata."""
    last = flat.last.copy()
    if len(last):
        last[-1] = True
    if flat.next_obs is not None:
        unrecorded = _unrecorded_resets(flat) & ~last
        last |= unrecorded
        if unrecorded.any():
            facts = facts.with_notes(
                f"{int(unrecorded.sum())} resets were not recorded and are read as truncations, "
                f"the first after row {int(np.argmax(unrecorded))}"
            )
    if limit:
        last = _cut_at_limit(last, limit)
    ended = last & (flat.discount == 0)
    if flat.next_obs is None and ended.any():
        facts = facts.with_notes(COPIED_LAST_NOTE)
    obs_space, action_space = _guess_spaces(flat, metadata)
    if metadata is None:
        facts = note_guessed_spaces(facts, action_space)
    size = sum(
        len(array) * _row_bytes(array)
        for array in (flat.obs, flat.action, flat.reward, *flat.extras.values())
    )
    blocks = _with_plain_actions(_read_blocks(flat, last, ended, metadata), action_space)
    known = metadata.hash if metadata and not limit else ""  # a limit changes the content
    return Stream(obs_space, action_space, facts, blocks, size, known)


def note_guessed_spaces(facts: Facts, action_space: Space) -> Facts:
    """Return the facts with notes that the spaces were guessed, and how action bounds were."""
    facts = facts.without(GUESSED_SPACES_NOTE).without(GUESSED_BOUNDS_NOTE)
    return facts.with_notes(
        GUESSED_SPACES_NOTE, *([GUESSED_BOUNDS_NOTE] if is_bounded_by_data(action_space) else [])
    )


def _row_bytes(array: Any) -> int:
    """Return the bytes of one row."""
    return int(np.prod(array.shape[1:], dtype=object)) * np.dtype(array.dtype).itemsize


def is_numeric(array: Any) -> bool:
    """Whether it holds real numbers or booleans, not text, dates, complex numbers or objects."""
    return getattr(array, "dtype", np.dtype(object)).kind in "fiub"


def require_numbers(array: Any, single: bool = False) -> Any:
    """Return the array itself; raise Mistake if it holds no real numbers, or if it should have a
    ``single`` number per row and has several."""
    if not is_numeric(array):
        kind = getattr(array, "dtype", type(array).__name__)
        raise Mistake(f"The array {_array_name(array)!r} holds {kind}. Save it as real numbers.")
    width = int(np.prod(array.shape[1:]))
    if single and width != 1:
        raise Mistake(
            f"The array {_array_name(array)!r} has {width} numbers per row. Save it with one per "
            "row."
        )
    return array


def _array_name(array: Any) -> str:
    return getattr(array, "name", "").strip("/")


def row_extras(others: Mapping[str, Any], rows: int) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays that have numbers for every row, and a note that names the others."""
    found = {
        name: array
        for name, array in others.items()
        if is_numeric(array) and array.ndim and len(array) == rows
    }
    left = ", ".join(name for name in others if name not in found)
    return found, [f"left out, not numbers for every row: {left}"] if left else []


def read_flags(array: Any) -> Bool[np.ndarray, "row"]:
    """Read flags, which may be stored as numbers or as a column; raise Mistake if one is NaN."""
    flags = read_scalars(array)
    unknown = np.isnan(flags)
    if unknown.any():
        at = int(np.argmax(unknown))
        raise Mistake(f"The array {_array_name(array)!r} is NaN at row {at}. Write 0 or 1 there.")
    return flags != 0


def read_scalars(array: Any) -> np.ndarray:
    """Read one number per row, ``(row,)`` or ``(row, 1)``, as ``(row,)``."""
    one = require_numbers(array, single=True)
    size = 3 * len(one) * one.dtype.itemsize  # including arrays computed from it
    available_memory.check_fits(size, f"The array {_array_name(one)!r}")
    return np.asarray(one[:]).reshape(len(one))


def _unrecorded_resets(flat: FlatArrays) -> Bool[np.ndarray, "row"]:
    """Return a mask of rows whose successor is not the next row's observation."""
    count = len(flat.obs)
    found = np.zeros(count, bool)
    for low in range(0, count - 1, BLOCK_ROWS):
        high = min(low + BLOCK_ROWS, count - 1)
        here, there = flat.next_obs[low:high], flat.obs[low + 1 : high + 1]
        found[low:high] = numbers_differ(here, there).reshape(high - low, -1).any(1)
    return found


def numbers_differ(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return a mask of numbers that differ by more than rounding; NaN equals NaN."""
    differ = here != there
    if here.dtype.kind == "f" and differ.any():
        with np.errstate(invalid="ignore", over="ignore"):
            close = np.abs(here - there) <= SUCCESSOR_TOLERANCE * (1 + np.abs(here))
        differ &= ~close & ~(np.isnan(here) & np.isnan(there))
    return differ


def _cut_at_limit(last: Bool[np.ndarray, "row"], limit: int) -> Bool[np.ndarray, "row"]:
    """Return the mask of last rows after splitting episodes longer than ``limit`` steps."""
    made, at = last.copy(), 0
    for end in np.flatnonzero(last).tolist():
        made[at + limit - 1 : end : limit] = True
        at = end + 1
    return made


def _guess_spaces(flat: FlatArrays, metadata: Metadata | None) -> tuple[Space, Space]:
    if metadata is not None:
        return metadata.obs_space, metadata.action_space
    parts = (flat.action[at : at + BLOCK_ROWS] for at in range(0, len(flat.action), BLOCK_ROWS))
    return guess_space("obs", flat.obs), guess_space("action", flat.action, *finite_extremes(parts))


def _with_plain_actions(blocks: Iterable[Block], action_space: Space) -> Iterator[Block]:
    """Yield the blocks with discrete actions as ``(row,)`` and boolean actions as integers."""
    for block in blocks:
        arrays = dict(block.arrays)
        if isinstance(action_space, Discrete):
            arrays["action"] = read_scalars(arrays["action"])
        if arrays["action"].dtype.kind == "b":
            arrays["action"] = arrays["action"].astype(np.int64)
        yield dataclasses.replace(block, arrays=arrays)


def _read_blocks(
    flat: FlatArrays,
    last: Bool[np.ndarray, "row"],
    ended: Bool[np.ndarray, "row"],
    metadata: Metadata | None,
) -> Iterator[Block]:
    """Yield whole episodes, about ``BLOCK_ROWS`` rows at a time."""
    stops = np.flatnonzero(last) + 1
    begins = np.concatenate([[0], stops[:-1]])
    at = number = 0
    while at < len(stops):
        until = max(int(np.searchsorted(stops, begins[at] + BLOCK_ROWS, "right")), at + 1)
        low, high = int(begins[at]), int(stops[until - 1])
        block = _read_block(flat, low, stops[at:until] - 1 - low, ended[low:high])
        if metadata is not None:
            sources = metadata.sources_of(number, len(block.lengths))
            block = dataclasses.replace(block, sources=sources)
        number += len(block.lengths)
        at = until
        if len(block.lengths):
            yield block


def _read_block(
    flat: FlatArrays, low: int, last: Int[np.ndarray, "episode"], ended: Bool[np.ndarray, "row"]
) -> Block:
    """Read the episodes whose last rows are ``last``, counted from row ``low`` of the file."""
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
        return _make_block(seen, rows, np.diff(last, prepend=-1))
    return complete_episodes({"obs": obs}, rows, last, ended[last])


def complete_episodes(
    obs: Arrays, rows: Arrays, last: Int[np.ndarray, "episode"], real: Bool[np.ndarray, "episode"]
) -> Block:
    """Make a block from episodes that lack their last observation.

    ``last`` are their last rows; ``real`` says which episodes terminated there. Those keep the last
    row and get a copy of its observation as successor; truncated episodes lose their last row.
    """
    lengths = np.diff(last, prepend=-1) - ~real
    count = int(last[-1]) + 1
    kept = np.ones(count, bool)
    kept[last[~real]] = False
    obs = {name: np.insert(x, last[real] + 1, x[last[real]], axis=0) for name, x in obs.items()}
    rows = {name: array[kept] for name, array in rows.items()}
    some = lengths > 0  # of a truncated episode with one row nothing is left
    if not some.all():
        slots = np.repeat(some, lengths + 1)
        obs = {name: x[slots] for name, x in obs.items()}
    return _make_block(obs, rows, lengths[some])


def _make_block(obs: Arrays, rows: Arrays, lengths: Int[np.ndarray, "episode"]) -> Block:
    sources = np.zeros(len(lengths), np.int32)
    return Block({**obs, **rows}, lengths.astype(np.int64), sources)
