"""Write a run's batches to disk, and learn from them again: exactly, or from their solved groups.

Their files: :mod:`sterling.experience.offline.batch_files`. A replay may combine the named rewards
of every turn by another rule.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from sterling import random_keys as named
from sterling.experience.batch_draws import (
    Due,
    PreparedBatches,
    SourceWrapper,
    StaticSource,
    every_feed,
)
from sterling.experience.language import raw_rewards
from sterling.experience.language.raw_rewards import RawRewards
from sterling.experience.offline.batch_files import check_folder, read_batch, write_batch
from sterling.language.named_rewards import RewardRule
from sterling.system.terminal_messages import print_notice
from sterling.types import Mistake, Record


class BatchRecorder(SourceWrapper, eqx.Module):
    """A source that writes every batch of ``source`` to a folder."""

    source: Any
    drawn: Int[Array, ""]  # number of batches so far, which is the next one's number
    folder: Path = eqx.field(static=True)
    # share of the questions that the run held out
    held_out: float = eqx.field(static=True, default=0.0)

    @property
    def traced(self) -> bool:
        """Return False: writing runs on the host."""
        return False

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[BatchRecorder, Any]:
        """Collect one batch of ``source`` and write it."""
        source, draws = self.source.collect(agent, keys, due)
        path = self.folder / f"{int(self.drawn):06d}.safetensors"
        raws = [each for world in self.worlds if (each := getattr(world, "raw", None))]
        write_batch(path, draws.record, self.held_out, raws[0] if raws else None)
        return dataclasses.replace(self, source=source, drawn=self.drawn + 1), draws

    def from_checkpoint(self, fresh: BatchRecorder) -> BatchRecorder:
        """Return the saved source, with the folder of ``fresh``."""
        source = self.source.from_checkpoint(fresh.source)
        return dataclasses.replace(fresh, source=source, drawn=self.drawn)


class RecordedBatches(StaticSource, eqx.Module):
    """Draws a folder's batches in their order, which repeats the same learning."""

    drawn: Int[Array, ""]
    folder: Path = eqx.field(static=True)
    rewards: str = eqx.field(static=True, default="")  # a rule for them; "": as recorded
    each: bool = eqx.field(static=True, default=False)  # its terms are normalised one by one

    @classmethod
    def open_folder(
        cls, folder: Path, count: int, rule: RewardRule, temperature: float = 1.0
    ) -> RecordedBatches:
        """Open a folder at its first batch; Mistake if it holds fewer than ``count`` batches, or
        no named rewards that ``rule`` could combine. A notice says if answers were sampled at
        another ``temperature`` than the learner's.

        Without this check a run would fail only at its end.
        """
        check_folder(folder)
        held = len(list(folder.glob("*.safetensors")))
        if held < count:
            said = f"{folder} holds {held} batches, but these updates need {count}"
            raise Mistake(f"{said}; ask for fewer updates")
        _report_temperature(read_batch(folder / "000000.safetensors"), temperature, folder)
        raw_rewards.check_rule("replay", folder, rule)
        return cls(jnp.zeros((), jnp.int32), folder, rule.text, rule.each)

    @property
    def traced(self) -> bool:
        """Return False: files are read on the host."""
        return False

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[RecordedBatches, PreparedBatches]:
        """Read the next batch; Mistake if the folder has no more, or was written with another
        number of seeds."""
        batch = read_batch(
            self.folder / f"{int(self.drawn):06d}.safetensors",
            RewardRule(self.rewards, each=self.each),
        )
        if (count := len(batch.mask)) != len(keys):
            said = f"{self.folder} was written with {count} seeds, and this run has {len(keys)}"
            raise Mistake(f"{said}; set seeds={count}")
        return dataclasses.replace(self, drawn=self.drawn + 1), PreparedBatches(batch)

    def to_checkpoint(self) -> RecordedBatches:
        """Return the source itself: the number of batches read is saved."""
        return self

    def from_checkpoint(self, fresh: RecordedBatches) -> RecordedBatches:
        """Return the saved position, in the folder of ``fresh``."""
        return dataclasses.replace(fresh, drawn=self.drawn)


class SolvedGroups(StaticSource, eqx.Module):
    """Draws groups of recorded answers of which some are right (RLEP, arXiv:2507.07451).

    Every seed draws from all seeds' groups: ``count`` groups of ``group`` rows each.
    """

    groups: Record | None  # (group, row, token); None in a checkpoint
    count: int = eqx.field(static=True)
    seats: int = eqx.field(static=True)  # each seat's lines form their own group

    @classmethod
    def load_folder(
        cls,
        folder: Path,
        count: int,
        group: int,
        seats: int,
        tokens: int,
        *,
        rule: RewardRule | None = None,
        raw: RawRewards | None = None,
        temperature: float = 1.0,
    ) -> SolvedGroups:
        """Load the solved groups of a folder: ``group`` lines per seat, padded to ``tokens``
        tokens, with the rewards that ``rule`` makes of their named ones, which ``raw`` keeps. A
        notice says if answers were sampled at another ``temperature`` than the learner's.

        Mistake if no answer is right, if the groups have another size, or if lines are longer than
        ``tokens``.
        """
        found = []
        check_folder(folder)
        rule = rule or RewardRule()
        raw_rewards.check_rule("pool", folder, rule)
        for number, path in enumerate(sorted(folder.glob("*.safetensors"))):
            stored = jax.tree.map(np.asarray, read_batch(path, rule, raw))
            if not number:
                _report_temperature(stored, temperature, folder)
            batch = _pad_tokens(stored, tokens, folder)
            index = _question_rows(batch, group, seats, folder)
            parts = jax.tree.map(lambda x, index=index: x[index], batch)
            parts.extras["group"] = parts.extras["group"] % seats
            parts.extras["version"] = np.full_like(parts.extras["version"], -1)  # another run's
            solved = (parts.extras["right"] & parts.extras["valid"]).any(1)
            found.append(jax.tree.map(lambda x, solved=solved: x[solved], parts))
        if not found or not sum(part.mask.shape[0] for part in found):
            raise Mistake(f"{folder} holds no group with a right answer; use another run's batches")
        whole = jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x)), *found)
        return cls(whole, count, seats)

    @property
    def traced(self) -> bool:
        """Return True: everything is on the device."""
        return True

    @property
    def rows(self) -> int:
        """Return the number of rows in a batch."""
        assert self.groups is not None
        return self.count * self.groups.mask.shape[1]

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[SolvedGroups, PreparedBatches]:
        """Draw ``count`` groups for every seed, ``(seed, row, token)``."""
        groups = self.groups
        assert groups is not None  # None only in a checkpoint

        def one(key: Key[Array, ""]) -> Record:
            index = jax.random.randint(key, (self.count,), 0, groups.mask.shape[0], jnp.int32)
            drawn = jax.tree.map(lambda x: x[index].reshape(-1, *x.shape[2:]), groups)
            rows = groups.mask.shape[1]
            number = jnp.arange(drawn.mask.shape[0], dtype=jnp.int32) // rows * self.seats
            group = number + drawn.extras["group"]
            return dataclasses.replace(drawn, extras={**drawn.extras, "group": group})

        return self, PreparedBatches(jax.vmap(one)(named.fold_each(keys, "remember")))

    def to_checkpoint(self) -> SolvedGroups:
        """Drop the groups: on resuming they are read from the folder again."""
        return SolvedGroups(None, self.count, self.seats)

    def from_checkpoint(self, fresh: SolvedGroups) -> SolvedGroups:
        """Take the groups of ``fresh``."""
        return fresh


def _report_temperature(batch: Record, temperature: float, folder: Path) -> None:
    """Print a notice if the answers of a batch were sampled at another temperature."""
    known = np.asarray(batch.extras["temperature"])[np.asarray(batch.mask)]
    others = np.unique(known[(known > 0.0) & ~np.isclose(known, temperature)])
    if others.size:
        print_notice(
            f"{folder}: its answers were sampled at temperature {others[0]:g}, and this run learns "
            f"a policy at {temperature:g}"
        )


def _question_rows(batch: Record, group: int, seats: int, folder: Path) -> tuple[Any, Any]:
    """Return seed and rows of every question with all its lines; Mistake if all groups have another
    size."""
    if batch.extras["rows_before"].any():
        raise Mistake(f"{folder} has answers of several contexts, which cannot be learned `again`")
    number, seeds, rows, sizes = batch.extras["group"], [], [], set()
    blank = ~batch.extras["valid"] & (number == number.shape[1] - 1)  # padding rows
    for seed, own in enumerate(np.where(blank, -1, number) // seats):
        for question in np.unique(own[own >= 0]):
            index = np.flatnonzero(own == question)
            sizes.add(len(index))
            if len(index) == group * seats:
                seeds.append(np.full(len(index), seed))
                rows.append(index)
    if sizes and not rows:
        raise Mistake(
            f"{folder} has groups of {max(sizes) // seats} answers, not {group}; "
            f"set group={max(sizes) // seats}"
        )
    width = group * seats
    return np.reshape(seeds, (-1, width)).astype(int), np.reshape(rows, (-1, width)).astype(int)


def _pad_tokens(batch: Record, tokens: int, folder: Path) -> Record:
    """Pad lines with zeros to ``tokens`` tokens; Mistake if they are longer."""
    own = batch.mask.shape[-1]
    if own > tokens:
        raise Mistake(f"lines in {folder} have {own + 1} tokens; set context={own + 1} or more")

    def longer(x: Any) -> Any:
        return np.pad(x, ((0, 0), (0, 0), (0, tokens - own))) if x.ndim == 3 else x

    return jax.tree.map(longer, batch)
