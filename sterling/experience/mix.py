"""Several sources at once: logged and fresh experience in one batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from sterling import keys as named
from sterling.actor import Actor
from sterling.experience.rollout import Tally
from sterling.types import Record, Signals


class Mix(eqx.Module):
    """Draws from every source and lays the batches end to end (Ball 2023, "symmetric sampling").

    The sources' batch sizes are the shares. ``extras["source"]`` says which a row came from;
    importance weights that only some sources give are 1 in the others, and groups stay apart.
    """

    sources: tuple[Any, ...]
    axis: int = eqx.field(static=True, default=2)  # of rows: transitions come in several batches

    @property
    def traced(self) -> bool:
        """Whether drawing may be compiled."""
        return all(source.traced for source in self.sources)

    @property
    def tally(self) -> Tally | None:
        """Episodes lived in the one source that lives."""
        return next((s.tally for s in self.sources if s.tally is not None), None)

    def draw(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Mix, Record]:
        """A batch ``(seed, update, batch, ...)`` or ``(seed, row, ...)`` of all."""
        sources, parts = [], []
        for place, each in enumerate(self.sources):
            source, record = each.draw(agent, named.fold_each(keys, "part", place))
            sources.append(source)
            parts.append(_marked(record, place))
        return Mix(tuple(sources), self.axis), _joined(parts, self.axis)

    def heed(self, signals: Signals) -> Mix:
        """Tell every source of its own rows."""
        start, heeding = 0, []
        for source in self.sources:
            stop = start + _rows(source)
            own = {
                name: jax.lax.slice_in_dim(x, start, stop, axis=self.axis)
                for name, x in signals.samples.items()
            }
            heeding.append(source.heed(Signals(signals.metrics, own)))
            start = stop
        return Mix(tuple(heeding), self.axis)

    def cleared(self) -> Mix:
        """With empty tallies."""
        return Mix(tuple(source.cleared() for source in self.sources), self.axis)

    def stored(self) -> Mix:
        """What of it is written."""
        return Mix(tuple(source.stored() for source in self.sources), self.axis)

    def restored(self, fresh: Mix) -> Mix:
        """The inverse of :meth:`stored`."""
        pairs = zip(self.sources, fresh.sources, strict=True)
        return Mix(tuple(saved.restored(new) for saved, new in pairs), self.axis)

    def close(self) -> None:
        """Release what the sources hold."""
        for source in self.sources:
            source.close()


def _marked(record: Record, place: int) -> Record:
    came = jnp.full(record.mask.shape, place, jnp.int32)
    return dataclasses.replace(record, extras={**record.extras, "source": came})


def _rows(source: Any) -> int:
    """How many rows of every batch are a source's."""
    return source.needs.batch if hasattr(source, "needs") else source.rows


def _joined(parts: Sequence[Record], axis: int) -> Record:
    """Records end to end along the rows."""
    if any("weight" in part.extras for part in parts):
        parts = [
            dataclasses.replace(part, extras={"weight": jnp.ones_like(part.reward), **part.extras})
            for part in parts
        ]
    return jax.tree.map(lambda *each: jnp.concatenate(each, axis), *_apart(parts))


def _apart(parts: Sequence[Record]) -> list[Record]:
    """The records with group numbers that no two of them share."""
    before, found = 0, []
    for part in parts:
        extras = dict(part.extras)
        if "group" in extras:
            extras["group"] = extras["group"] + before
        found.append(dataclasses.replace(part, extras=extras))
        before += part.mask.shape[1]
    return found
