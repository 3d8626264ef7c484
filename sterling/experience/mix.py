"""Several sources at once: logged and fresh experience in one batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from sterling import keys as named
from sterling.actor import Actor
from sterling.experience.draws import Unvisited
from sterling.experience.rollout import Tally
from sterling.types import Feed, Record, Signals

ELSEWHERE = {"weight": 1.0, "place": -1}  # of rows from sources that do not say


class Mix(Unvisited, eqx.Module):
    """Lays the batches of every source end to end (Ball 2023, "symmetric sampling").

    The sources' batch sizes are the shares. ``extras["source"]`` says which a row came from;
    importance weights that only some sources give are 1 in the others, and groups stay apart.
    """

    sources: tuple[Any, ...]

    @property
    def traced(self) -> bool:
        """Whether collecting may be compiled."""
        return all(source.traced for source in self.sources)

    @property
    def tally(self) -> Tally | None:
        """Episodes lived in the one source that lives."""
        return next((s.tally for s in self.sources if s.tally is not None), None)

    @property
    def worlds(self) -> tuple[Any, ...]:
        """Those of all."""
        return tuple(world for source in self.sources for world in source.worlds)

    def warm(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Mix:
        """What the sources live before the first update."""
        return self._each(lambda source: source.warm(agent, keys, chance=chance))

    def collect(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Mix, Mixed]:
        """One iteration's experience of all."""
        each = enumerate(self.sources)
        pairs = [x.collect(agent, named.fold_each(keys, "part", at)) for at, x in each]
        return Mix(tuple(x for x, _ in pairs)), Mixed(tuple(draws for _, draws in pairs))

    def hearing(self, heard: PyTree) -> Mix:
        """With what each was told of its own rows."""
        pairs = zip(self.sources, heard, strict=True)
        return Mix(tuple(source.hearing(own) for source, own in pairs))

    def cleared(self) -> Mix:
        """With empty tallies."""
        return self._each(lambda source: source.cleared())

    def stored(self) -> Mix:
        """What of it is written."""
        return self._each(lambda source: source.stored())

    def restored(self, fresh: Mix) -> Mix:
        """The inverse of :meth:`stored`."""
        pairs = zip(self.sources, fresh.sources, strict=True)
        return Mix(tuple(saved.restored(new) for saved, new in pairs))

    def close(self) -> None:
        """Release what the sources hold."""
        for source in self.sources:
            source.close()

    def _each(self, change: Callable[[Any], Any]) -> Mix:
        return Mix(tuple(change(source) for source in self.sources))


class Mixed(eqx.Module):
    """Batches of several draws, end to end along their rows."""

    parts: tuple[Any, ...]

    heard = property(lambda self: tuple(part.heard for part in self.parts), doc="Of each part.")

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return sum(part.rows(feed) for part in self.parts)

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Those of each part."""
        each = enumerate(self.parts)
        return tuple(x.chances(feed, named.fold_each(keys, "part", at)) for at, x in each)

    def draw(self, feed: Feed, seed: Int[Array, ""], heard: PyTree, chance: PyTree) -> Record:
        """A batch ``(batch, ...)`` or ``(row, ...)`` of all."""
        own = zip(self.parts, heard, chance, strict=True)
        records = [part.draw(feed, seed, *each) for part, *each in own]
        return _joined([_marked(record, at) for at, record in enumerate(records)])

    def heed(self, feed: Feed, heard: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Tell every source of its own rows."""
        told, start = [], 0
        for part, own in zip(self.parts, heard, strict=True):
            rows = slice(start, start + part.rows(feed))
            samples = {name: x[rows] for name, x in signals.samples.items()}
            its = jax.tree.map(lambda x, rows=rows: x[rows], batch)
            told.append(part.heed(feed, own, Signals(signals.metrics, samples), its))
            start = rows.stop
        return tuple(told)


def _marked(record: Record, place: int) -> Record:
    came = jnp.full(record.mask.shape, place, jnp.int32)
    return dataclasses.replace(record, extras={**record.extras, "source": came})


def _joined(parts: Sequence[Record]) -> Record:
    """Records end to end along the rows."""
    names = {name for part in parts for name in part.extras}
    for name in names & set(ELSEWHERE):
        parts = [_with(part, name) for part in parts]
    return jax.tree.map(lambda *each: jnp.concatenate(each), *_apart(parts))


def _with(part: Record, name: str) -> Record:
    value = jnp.full(part.mask.shape[:1], ELSEWHERE[name])
    return dataclasses.replace(part, extras={name: value, **part.extras})


def _apart(parts: Sequence[Record]) -> list[Record]:
    """The records with group numbers that no two of them share."""
    before, found = 0, []
    for part in parts:
        extras = dict(part.extras)
        if "group" in extras:
            extras["group"] = extras["group"] + before
        found.append(dataclasses.replace(part, extras=extras))
        before += part.mask.shape[0]
    return found
