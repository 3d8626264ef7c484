"""Logged experience: whole episodes in columns, in memory or mapped from a file."""

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

from sterling.data import chosen, spaces
from sterling.data.columns import BLOCK, Arrays, Block, Digest, has_successors, joined
from sterling.data.facts import Facts, Passport, Source
from sterling.data.memory import room
from sterling.data.spaces import Space
from sterling.envs.board import tree
from sterling.types import Mistake, Obs, Record, Spec


@dataclasses.dataclass(frozen=True)
class Episode:
    """One episode of n steps, as stored."""

    obs: Obs  # n + 1 of them
    action: PyTree[Any]
    reward: Float[np.ndarray, "n"]
    discount: Float[np.ndarray, "n"]  # 0 where the world ended, 1 also at a cut
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
        """Whether the world ended; otherwise the episode was cut."""
        return bool(len(self) and self.discount[-1] == 0)


class Dataset:
    """Logged experience.

    >>> data = Dataset("hopper-medium")      # any format; see ``sterling.data.formats``
    >>> len(data), data.rows                 # episodes, steps
    >>> data.top(0.1).transitions()          # the best tenth of the episodes, as a Record

    ``data[10:20]``, ``data[[3, 5]]`` and ``data[mask]`` are datasets of some of its episodes,
    ``data[3]`` is one :class:`Episode`; they copy nothing. What is larger than ``memory`` bytes (by
    default half of the free memory) is mapped from its file and read where it is needed; that
    takes Sterling's own format. Raises Mistake for what cannot be read or was damaged.
    """

    path: Path | None  # the file it was read from

    def __init__(self, path: str | Path, *, memory: int | None = None):
        from sterling.data.formats import load

        opened = load(Path(path), room() if memory is None else memory)
        self._start(opened.block, opened.passport, np.arange(len(opened.block.lengths)))
        self.mapped, self._known_hash = opened.mapped, opened.passport.hash
        self.path = Path(path)

    def _start(self, block: Block, passport: Passport, numbers: Int[np.ndarray, "episode"]) -> None:
        self._block, self._passport, self._numbers = block, passport, numbers
        self.mapped, self._known_hash = False, ""
        self.path = None
        self.lengths = block.lengths[numbers]  # steps of every episode
        self._ends = np.cumsum(self.lengths)
        self._begins = self._ends - self.lengths
        self._first = block.begins  # row of the columns in which an episode begins

    @classmethod
    def of(
        cls, block: Block, obs_space: Space, action_space: Space, facts: Facts | None = None
    ) -> Dataset:
        """A dataset of columns in memory."""
        made = cls.__new__(cls)
        passport = Passport(obs_space, action_space, facts or Facts(), block.sources, "")
        made._start(block.checked(), passport, np.arange(len(block.lengths)))
        expected = {*spaces.parts("obs", obs_space), *spaces.parts("action", action_space)}
        for name in (*expected, "reward", "discount"):
            if name not in block.arrays:
                raise Mistake(f"there is no column {name!r}; there are {', '.join(block.arrays)}")
        return made

    obs_space = property(lambda self: self._passport.obs_space, doc="As stored.")
    action_space = property(lambda self: self._passport.action_space, doc="As stored.")
    facts = property(lambda self: self._passport.facts, doc="Environment, references, sources.")
    episodes = property(lambda self: len(self._numbers), doc="How many there are.")
    rows = property(lambda self: int(self.lengths.sum()), doc="Steps of all episodes.")
    columns = property(lambda self: list(self._block.arrays), doc="Names of all columns.")

    @property
    def bytes(self) -> int:
        """Of all columns, whether in memory or not."""
        return sum(array.nbytes for array in self._block.arrays.values())

    @property
    def spec(self) -> Spec:
        """The problem as an agent sees it, which is how :meth:`transitions` answers."""
        obs, action = spaces.obs_of_agent(self.obs_space), spaces.of_agent(self.action_space)
        return Spec(obs, action)

    def __len__(self) -> int:
        return self.episodes

    def __iter__(self) -> Iterator[Episode]:
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        name = self.facts.environment or "an unnamed environment"
        return f"Dataset({self.episodes} episodes, {self.rows} rows of {name})"

    def __getitem__(self, which: Any) -> Any:
        """One :class:`Episode` by number, or a dataset of some by a slice, numbers or a mask."""
        if isinstance(which, (int, np.integer)):
            return self._episode(range(len(self))[which])
        if isinstance(which, list):
            which = np.asarray(which) if which else slice(0)  # an empty array counts as decimals
        chosen = np.arange(len(self))[which]
        some = Dataset.__new__(Dataset)
        some._start(self._block, self._passport, self._numbers[chosen])
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
            _under("extra/", arrays),
            _under("info/", arrays),
            self.facts.sources[int(one.sources[0])],
        )

    def _tree(self, kind: str, arrays: Arrays) -> PyTree[Any]:
        space = self.obs_space if kind == "obs" else self.action_space
        return tree(space, (arrays[name] for name in spaces.parts(kind, space)))

    @functools.cached_property
    def returns(self) -> Float[np.ndarray, "episode"]:
        """The undiscounted return of every episode."""
        found = [np.zeros(0)]
        for block in self.blocks():
            total, some = np.zeros(len(block.lengths)), block.lengths > 0
            reward = block.arrays["reward"].astype(np.float64)
            total[some] = np.add.reduceat(reward, block.begins[some]) if some.any() else 0.0
            found.append(total)
        return np.concatenate(found)

    @functools.cached_property
    def ended(self) -> np.ndarray:
        """Of every episode, whether the world ended; the others were cut."""
        last, some = self._first[self._numbers] + self.lengths - 1, self.lengths > 0
        found = np.zeros(len(self), bool)
        found[some] = self._block.arrays["discount"][last[some]] == 0
        return found

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 of spaces, lengths and all numbers; the same in whatever file they lie."""
        if self._known_hash:
            return self._known_hash
        digest = Digest(self.obs_space, self.action_space)
        for _ in digest.passing(self.blocks()):
            pass
        return digest.value

    @property
    def passport(self) -> Passport:
        """What is written beside the numbers."""
        sources = self._block.sources[self._numbers]
        return dataclasses.replace(self._passport, sources=sources, hash=self.hash)

    def top(self, share: float) -> Dataset:
        """The ``share`` of the episodes with the largest returns, at least one; for %BC."""
        if not 0.0 < share <= 1.0:
            raise Mistake(f"the share of the best episodes lies between 0 and 1; got {share}")
        count = max(round(share * len(self)), 1)
        return self[np.sort(np.argsort(-self.returns, kind="stable")[:count])]

    def where(self, wanted: Callable[[Episode], bool]) -> Dataset:
        """The episodes of which ``wanted`` is true: ``data.where(lambda e: e.total > 100)``."""
        return self[np.fromiter((wanted(one) for one in self), bool, len(self))]

    def save(self, path: str | Path, format: str = "sterling") -> Path:
        """Write it in one of ``sterling.data.formats.WRITTEN``; the old file stays until then."""
        from sterling.data.formats import write

        return write(self, Path(path), format)

    def renamed(self, facts: Facts) -> Dataset:
        """The same experience with other facts."""
        made = self[:]
        made._passport = dataclasses.replace(self._passport, facts=facts)
        return made

    def rewarded(self, change: Callable[[np.ndarray], np.ndarray]) -> Dataset:
        """The same experience with other rewards: what ``change`` makes of all rows'."""
        made = self[:]
        rewards = change(np.asarray(self._block.arrays["reward"]))
        arrays = {**self._block.arrays, "reward": rewards}
        made._block = dataclasses.replace(self._block, arrays=arrays)
        return made

    def blocks(self, rows: int = BLOCK) -> Iterator[Block]:
        """All episodes, in blocks of about ``rows`` steps; what to loop over when it is mapped."""
        at = 0
        while at < len(self):
            done = self._begins[at]
            stop = max(int(np.searchsorted(self._ends, done + rows, "right")), at + 1)
            numbers = self._numbers[at:stop]
            cuts = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
            runs = itertools.pairwise(cuts)
            spans = [(int(numbers[low]), int(numbers[high - 1]) + 1) for low, high in runs]
            yield joined(self._block.cut(*span) for span in spans)
            at = stop

    def transitions(self, index: Any = None) -> Record:
        """Rows as an agent would have lived them: a Record of JAX arrays, shaped as ``index``.

        ``index`` counts this dataset's rows from 0, or is a mask of them (whose rows then stand in
        a line); None means all, as ``(row, ...)``. Actions are in an agent's units (bounded boxes
        in [-1, 1], choices from 0) and numbers have at most 32 bits, as ``spec`` says. ``next_obs``
        is the true successor also at a cut; ``extras`` hold what else there is of every row
        (``log_prob``, ``goal``). From a mapped dataset only these rows are read; all of them at
        once are refused. Raises Mistake for rows that are not there.
        """
        if index is None and self.mapped:
            size = f"{self.bytes / 1e9:.1f} GB"
            raise Mistake(f"the dataset is larger than memory ({size}); take transitions(index)")
        rows = np.arange(self.rows) if index is None else _numbers(index, self.rows)
        at = np.searchsorted(self._ends, rows, side="right")
        within = rows - self._begins[at]
        number = self._numbers[at]
        row = self._first[number] + within
        arrays = {
            name: array[row + number if has_successors(name) else row]
            for name, array in self._block.arrays.items()
            if not name.startswith("info/")
        }
        seen, following = spaces.parts("obs", self.obs_space), {}
        for name, part in seen.items():
            following[name] = spaces.as_agent_sees(part, self._block.arrays[name][row + number + 1])
            arrays[name] = spaces.as_agent_sees(part, arrays[name])
        arrays = chosen.as_agent_acts(self.action_space, arrays)
        arrays = {name: spaces.single(array) for name, array in arrays.items()}
        return Record(
            obs=jax.tree.map(jnp.asarray, self._tree("obs", arrays)),
            action=jax.tree.map(jnp.asarray, self._tree("action", arrays)),
            reward=jnp.asarray(arrays["reward"], jnp.float32),
            discount=jnp.asarray(arrays["discount"], jnp.float32),
            next_obs=jax.tree.map(jnp.asarray, self._tree("obs", following)),
            last=jnp.asarray(within == self.lengths[at] - 1),
            mask=jnp.asarray(np.ones(rows.shape, bool)),
            extras=jax.tree.map(jnp.asarray, _under("extra/", arrays)),
        )


def _numbers(index: Any, count: int) -> Int[np.ndarray, "..."]:
    """The numbers of those of ``count`` rows that are asked for, by numbers or by a mask."""
    asked = np.asarray(index)
    if asked.dtype.kind == "b":
        if asked.shape != (count,):
            raise Mistake(f"a mask has one truth for each of the {count} rows; got {asked.shape}")
        return np.flatnonzero(asked)
    if not asked.size:  # an empty list counts as decimals
        return asked.astype(np.int64)
    if asked.dtype.kind not in "iu":
        raise Mistake(f"rows are asked for by whole numbers or a mask; got {asked.dtype}")
    if asked.min() < 0 or asked.max() >= count:
        raise Mistake(f"rows lie between 0 and {count - 1}; got {asked.min()}, {asked.max()}")
    return asked


def _under(prefix: str, arrays: Arrays) -> Arrays:
    """The columns whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
