"""The Dataset class: whole logged episodes in columns, in memory or memory-mapped from a file."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from sterling.data import recorded_actions, space_json
from sterling.data.available_memory import memory_budget
from sterling.data.dataset_metadata import Facts, Metadata, Source
from sterling.data.episode_columns import (
    BLOCK_ROWS,
    Arrays,
    Block,
    ContentHash,
    block_ranges,
    check_columns,
    is_per_observation,
    join_blocks,
    row_numbers,
)
from sterling.data.space_json import Space
from sterling.envs.hosted.shared_memory import arrange_leaves
from sterling.types import Mistake, Obs, Record, Spec


@dataclasses.dataclass(frozen=True)
class Episode:
    """One episode of n steps, as stored."""

    obs: Obs  # n + 1 of them
    action: PyTree[Any]
    reward: Float[np.ndarray, "n"]
    discount: Float[np.ndarray, "n"]  # 0 where the episode terminated; 1 also at a truncation
    extras: Arrays  # n of each: log_prob, goal...
    infos: Arrays  # n + 1 of each
    source: Source

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def total(self) -> float:
        """The undiscounted return."""
        return float(self.reward.sum(dtype=np.float64))

    @property
    def ended(self) -> bool:
        """Whether the episode terminated; otherwise it was truncated."""
        return bool(len(self) and self.discount[-1] == 0)


class Dataset:
    """A dataset of logged episodes.

    >>> data = Dataset("hopper-medium")      # any format; see ``sterling.data.formats``
    >>> len(data), data.rows                 # episodes, steps
    >>> data.top(0.1).transitions()          # the best tenth of the episodes, as a Record

    ``data[10:20]``, ``data[[3, 5]]`` and ``data[mask]`` are datasets of some of its episodes,
    ``data[3]`` is one :class:`Episode`; none of these copies numbers. A dataset larger than
    ``memory`` bytes (default: half of the free memory) is memory-mapped, which only Sterling's own
    format supports. Raises Mistake for files that cannot be read or are damaged.
    """

    path: Path | None  # the file it was read from

    def __init__(self, path: str | Path, *, memory: int | None = None):
        from sterling.data.formats import load_file

        opened = load_file(Path(path), memory_budget() if memory is None else memory)
        self._start(opened.block, opened.metadata, np.arange(len(opened.block.lengths)))
        self.mapped, self._known_hash = opened.mapped, opened.metadata.hash
        self.path = Path(path)

    def _start(self, block: Block, metadata: Metadata, numbers: Int[np.ndarray, "episode"]) -> None:
        self._block, self._metadata, self._numbers = block, metadata, numbers
        self.mapped, self._known_hash = False, ""
        self.path = None
        self.lengths = block.lengths[numbers]  # steps of every episode
        self._ends = np.cumsum(self.lengths)
        self._begins = self._ends - self.lengths
        self._first = block.begins  # row of the columns in which an episode begins

    @classmethod
    def from_block(
        cls, block: Block, obs_space: Space, action_space: Space, facts: Facts | None = None
    ) -> Dataset:
        """Make a dataset from columns in memory."""
        made = cls.__new__(cls)
        metadata = Metadata(obs_space, action_space, facts or Facts(), block.sources, "")
        made._start(block.checked(), metadata, np.arange(len(block.lengths)))
        check_columns(block, obs_space, action_space)
        return made

    obs_space = property(lambda self: self._metadata.obs_space, doc="As stored.")
    action_space = property(lambda self: self._metadata.action_space, doc="As stored.")
    facts = property(lambda self: self._metadata.facts, doc="Environment, references, sources.")
    episodes = property(lambda self: len(self._numbers), doc="The number of episodes.")
    rows = property(lambda self: int(self.lengths.sum()), doc="The number of steps, all episodes.")
    columns = property(lambda self: list(self._block.arrays), doc="The names of all columns.")

    @property
    def bytes(self) -> int:
        """Return the size of all columns in bytes, in memory or mapped."""
        return sum(array.nbytes for array in self._block.arrays.values())

    @property
    def spec(self) -> Spec:
        """Return the spaces as an agent sees them, which :meth:`transitions` follows, and the time
        limit as far as the metadata says it."""
        obs, action = (
            space_json.agent_obs_space(self.obs_space),
            space_json.action_space_for_agent(self.action_space),
        )
        return Spec(obs, action, limit=self.facts.limit)

    def __len__(self) -> int:
        return self.episodes

    def __iter__(self) -> Iterator[Episode]:
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        name = self.facts.environment or "an unnamed environment"
        return f"Dataset({self.episodes} episodes, {self.rows} rows of {name})"

    def __getitem__(self, which: Any) -> Any:
        """Return one :class:`Episode` for an integer; a dataset for a slice, integers or a mask."""
        if isinstance(which, (int, np.integer)):
            return self._episode(range(len(self))[which])
        if isinstance(which, list):
            which = np.asarray(which) if which else slice(0)  # an empty list would become floats
        chosen = np.arange(len(self))[which]
        some = Dataset.__new__(Dataset)
        some._start(self._block, self._metadata, self._numbers[chosen])
        some.mapped, some.path = self.mapped, self.path
        return some

    def _episode(self, at: int) -> Episode:
        number = int(self._numbers[at])
        one = self._block.cut(number, number + 1)
        arrays = one.arrays
        return Episode(
            self._tree("obs", arrays),
            self._tree("action", arrays),
            arrays["reward"],
            arrays["discount"],
            _strip_prefix("extra/", arrays),
            _strip_prefix("info/", arrays),
            self.facts.sources[int(one.sources[0])],
        )

    def _tree(self, kind: str, arrays: Arrays) -> PyTree[Any]:
        space = self.obs_space if kind == "obs" else self.action_space
        return arrange_leaves(
            space, (arrays[name] for name in space_json.column_spaces(kind, space))
        )

    def narrow(self, arrays: Arrays) -> Arrays:
        """Return rows of columns with at most 32 bits; see :meth:`Block.narrow`."""
        return self._block.narrow(arrays)

    @functools.cached_property
    def returns(self) -> Float[np.ndarray, "episode"]:
        """Return the undiscounted return of every episode."""
        found = [np.zeros(0)]
        for block in self.blocks():
            total, some = np.zeros(len(block.lengths)), block.lengths > 0
            reward = block.arrays["reward"].astype(np.float64)
            total[some] = np.add.reduceat(reward, block.begins[some]) if some.any() else 0.0
            found.append(total)
        return np.concatenate(found)

    @functools.cached_property
    def ended(self) -> np.ndarray:
        """Return a mask of the episodes that terminated; the others were truncated."""
        last, some = self._first[self._numbers] + self.lengths - 1, self.lengths > 0
        found = np.zeros(len(self), bool)
        found[some] = self._block.arrays["discount"][last[some]] == 0
        return found

    @functools.cached_property
    def hash(self) -> str:
        """Return the SHA-256 of spaces, lengths and all numbers; it is the same in every format."""
        if self._known_hash:
            return self._known_hash
        digest = ContentHash(self.obs_space, self.action_space)
        for _ in digest.add_each(self.blocks()):
            pass
        return digest.value

    @property
    def metadata(self) -> Metadata:
        """Return what is written beside the numbers: spaces, facts, sources and hash."""
        sources = self._block.sources[self._numbers]
        return dataclasses.replace(self._metadata, sources=sources, hash=self.hash)

    def top(self, share: float) -> Dataset:
        """Return the ``share`` of the episodes with the largest returns, at least one (%BC)."""
        if not 0.0 < share <= 1.0:
            raise Mistake(f"The share of best episodes must be above 0 and at most 1; got {share}.")
        count = max(round(share * len(self)), 1)
        return self[np.sort(np.argsort(-self.returns, kind="stable")[:count])]

    def where(self, wanted: Callable[[Episode], bool]) -> Dataset:
        """Return the episodes for which ``wanted`` is true: ``data.where(lambda e: e.ended)``."""
        return self[np.fromiter((wanted(one) for one in self), bool, len(self))]

    def save(self, path: str | Path, format: str = "sterling") -> Path:
        """Write the dataset in a format of ``sterling.data.formats.WRITABLE_FORMATS``; an old file
        at ``path`` stays until the new one is complete."""
        from sterling.data.formats import write_dataset

        return write_dataset(self, Path(path), format)

    def with_facts(self, facts: Facts) -> Dataset:
        """Return a dataset with the same columns and other facts."""
        made = self[:]
        made._metadata = dataclasses.replace(self._metadata, facts=facts)
        return made

    def with_rewards(self, change: Callable[[np.ndarray], np.ndarray]) -> Dataset:
        """Return a dataset whose rewards are ``change(rewards of all rows)``."""
        made = self[:]
        rewards = change(np.asarray(self._block.arrays["reward"]))
        arrays = {**self._block.arrays, "reward": rewards}
        made._block = dataclasses.replace(self._block, arrays=arrays)
        return made

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Block]:
        """Yield all episodes in blocks of about ``rows`` steps; loop over these when the dataset
        is memory-mapped."""
        for first, stop in block_ranges(self.lengths, rows):
            numbers = self._numbers[first:stop]
            cuts = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
            runs = itertools.pairwise(cuts)
            spans = [(int(numbers[low]), int(numbers[high - 1]) + 1) for low, high in runs]
            yield join_blocks(self._block.cut(*span) for span in spans)

    def transitions(self, index: Any = None) -> Record:
        """Return rows as a Record of JAX arrays, shaped like ``index``.

        ``index`` holds row numbers of this dataset, counted from 0, or is a mask over its rows (the
        result then has one axis); None means all rows, as ``(row, ...)``. Actions are in an agent's
        units (bounded boxes in [-1, 1], discrete actions from 0) and numbers have at most 32 bits,
        as ``spec`` says. ``next_obs`` is the true successor also at a truncation; ``extras`` hold
        the other columns with one entry per row (``log_prob``, ``goal``). From a memory-mapped
        dataset only these rows are read; all rows at once are refused. Raises Mistake for row
        numbers that do not exist.
        """
        if index is None and self.mapped:
            size = f"{self.bytes / 1e9:.1f} GB"
            raise Mistake(
                f"The dataset is larger than memory ({size}). Read some rows at a time with "
                "transitions(index)."
            )
        rows = np.arange(self.rows) if index is None else row_numbers(index, self.rows)
        at = np.searchsorted(self._ends, rows, side="right")
        within = rows - self._begins[at]
        number = self._numbers[at]
        row = self._first[number] + within
        arrays = {
            name: array[row + number if is_per_observation(name) else row]
            for name, array in self._block.arrays.items()
            if not name.startswith("info/")
        }
        seen, following = space_json.column_spaces("obs", self.obs_space), {}
        for name, part in seen.items():
            following[name] = space_json.to_agent_obs(
                part, self._block.arrays[name][row + number + 1]
            )
            arrays[name] = space_json.to_agent_obs(part, arrays[name])
        arrays = recorded_actions.to_agent_units(self.action_space, arrays)
        arrays = self.narrow(arrays)
        return Record(
            obs=jax.tree.map(jnp.asarray, self._tree("obs", arrays)),
            action=jax.tree.map(jnp.asarray, self._tree("action", arrays)),
            reward=jnp.asarray(arrays["reward"], jnp.float32),
            discount=jnp.asarray(arrays["discount"], jnp.float32),
            next_obs=jax.tree.map(jnp.asarray, self._tree("obs", following)),
            last=jnp.asarray(within == self.lengths[at] - 1),
            mask=jnp.asarray(np.ones(rows.shape, bool)),
            extras=jax.tree.map(jnp.asarray, _strip_prefix("extra/", arrays)),
        )


def _strip_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Return the columns whose names begin with ``prefix``, under their names without it."""
    return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
