"""A mixture of sources: for example logged and fresh experience in one batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.experience.batch_draws import Due, NoVisits, collect_rest, every_feed, has_rest
from sterling.experience.rollouts.episode_tally import Tally
from sterling.types import Feed, Record, Signals

DEFAULT_EXTRAS = {"weight": 1.0, "place": -1}  # for rows from sources without these extras


class Mix(NoVisits, eqx.Module):
    """Concatenates the batches of several sources (Ball 2023, "symmetric sampling").

    The sources' batch sizes are their shares. ``extras["source"]`` is the number of the source that
    a row came from. Importance weights that only some sources provide are 1 in the others; group
    numbers are made distinct.
    """

    sources: tuple[Any, ...]

    @property
    def traced(self) -> bool:
        """Whether collecting can be compiled."""
        return all(source.traced for source in self.sources)

    @property
    def tally(self) -> Tally | None:
        """Return the tally of the one source that has episodes."""
        return next((s.tally for s in self.sources if s.tally is not None), None)

    @property
    def worlds(self) -> tuple[Any, ...]:
        """Return the worlds of all sources."""
        return tuple(world for source in self.sources for world in source.worlds)

    def warm_up(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Mix:
        """Collect the warm-up of every source."""
        return self._each(lambda source: source.warm_up(agent, keys, chance=chance))

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Mix, MixedDraws]:
        """Collect one iteration's experience with every source."""
        each = enumerate(self.sources)
        pairs = [x.collect(agent, named.fold_each(keys, "part", at), due) for at, x in each]
        return Mix(tuple(x for x, _ in pairs)), MixedDraws(tuple(draws for _, draws in pairs))

    @property
    def has_rest(self) -> bool:
        """Whether a source has something left to collect."""
        return any(map(has_rest, self.sources))

    def collect_rest(self) -> Mix:
        """Let every source collect what it left."""
        return self._each(collect_rest)

    def with_feedback(self, feedback: PyTree) -> Mix:
        """Pass each source the state that updates changed."""
        pairs = zip(self.sources, feedback, strict=True)
        return Mix(tuple(source.with_feedback(own) for source, own in pairs))

    def reset_statistics(self) -> Mix:
        """Return the source with empty tallies."""
        return self._each(lambda source: source.reset_statistics())

    def to_checkpoint(self) -> Mix:
        """Return the part that a checkpoint saves."""
        return self._each(lambda source: source.to_checkpoint())

    def from_checkpoint(self, fresh: Mix) -> Mix:
        """Return the saved sources, completed from those of ``fresh``."""
        pairs = zip(self.sources, fresh.sources, strict=True)
        return Mix(tuple(saved.from_checkpoint(new) for saved, new in pairs))

    def close(self) -> None:
        """Release the resources of every source."""
        for source in self.sources:
            source.close()

    def _each(self, change: Callable[[Any], Any]) -> Mix:
        return Mix(tuple(change(source) for source in self.sources))


class MixedDraws(eqx.Module):
    """Batches of several draws, concatenated along the rows."""

    parts: tuple[Any, ...]

    feedback = property(
        lambda self: tuple(part.feedback for part in self.parts),
        doc="The state of every part that updates change.",
    )

    @property
    def record(self) -> Record:
        """Return all fresh experience of every part, ``(seed, row, ...)``: for feeds that give it
        whole, what :meth:`draw` returns."""
        return jax.vmap(_mix)([part.record for part in self.parts])

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return sum(part.rows(feed) for part in self.parts)

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Draw every part's random numbers."""
        each = enumerate(self.parts)
        return tuple(x.presample(feed, named.fold_each(keys, "part", at)) for at, x in each)

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: PyTree, sample: PyTree) -> Record:
        """Return a batch ``(batch, ...)`` or ``(row, ...)`` with the rows of all parts."""
        own = zip(self.parts, feedback, sample, strict=True)
        return _mix([part.draw(feed, seed, *each) for part, *each in own])

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Pass every source the signals of its own rows."""
        told, start = [], 0
        for part, own in zip(self.parts, feedback, strict=True):
            rows = slice(start, start + part.rows(feed))
            samples = {name: x[rows] for name, x in signals.samples.items()}
            its = jax.tree.map(lambda x, rows=rows: x[rows], batch)
            told.append(part.heed(feed, own, Signals(signals.metrics, samples), its))
            start = rows.stop
        return tuple(told)


def _mix(records: Sequence[Record]) -> Record:
    """Concatenate the records of all sources along the rows, each row with its source's number."""
    return _concatenate([_with_source_number(record, at) for at, record in enumerate(records)])


def _with_source_number(record: Record, place: int) -> Record:
    came = jnp.full(record.mask.shape, place, jnp.int32)
    return dataclasses.replace(record, extras={**record.extras, "source": came})


def _concatenate(parts: Sequence[Record]) -> Record:
    """Concatenate records along the rows."""
    names = {name for part in parts for name in part.extras}
    for name in names & set(DEFAULT_EXTRAS):
        parts = [_with_default(part, name) for part in parts]
    return jax.tree.map(lambda *each: jnp.concatenate(each), *_with_distinct_groups(parts))


def _with_default(part: Record, name: str) -> Record:
    value = jnp.full(part.mask.shape[:1], DEFAULT_EXTRAS[name])
    return dataclasses.replace(part, extras={name: value, **part.extras})


def _with_distinct_groups(parts: Sequence[Record]) -> list[Record]:
    """Return the records with group numbers that no two of them share."""
    before, found = 0, []
    for part in parts:
        extras = dict(part.extras)
        if "group" in extras:
            extras["group"] = extras["group"] + before
        found.append(dataclasses.replace(part, extras=extras))
        before += part.mask.shape[0]
    return found
