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
from sterling.experience.rollout import Actor, Tally
from sterling.types import Record, Signals


class Mix(eqx.Module):
    """Draws from every source and lays the batches end to end (Ball 2023, "symmetric sampling").

    The sources' batch sizes are the shares. ``extras["source"]`` says which a row came from;
    importance weights that only some sources give are 1 in the others.
    """

    sources: tuple[Any, ...]

    @property
    def traced(self) -> bool:
        """Whether drawing may be compiled."""
        return all(source.traced for source in self.sources)

    @property
    def tally(self) -> Tally | None:
        """Episodes lived in the one source that lives."""
        return next((s.tally for s in self.sources if s.tally is not None), None)

    def draw(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Mix, Record]:
        """A batch ``(seed, update, batch, ...)`` of all."""
        sources, parts = [], []
        for place, each in enumerate(self.sources):
            source, record = each.draw(agent, named.fold_each(keys, "part", place))
            sources.append(source)
            parts.append(_marked(record, place))
        return Mix(tuple(sources)), _joined(parts)

    def heed(self, signals: Signals) -> Mix:
        """Tell every source of its own rows."""
        start, heeding = 0, []
        for source in self.sources:
            stop = start + source.needs.batch
            own = {name: x[:, :, start:stop] for name, x in signals.samples.items()}
            heeding.append(source.heed(Signals(signals.metrics, own)))
            start = stop
        return Mix(tuple(heeding))

    def cleared(self) -> Mix:
        """With empty tallies."""
        return Mix(tuple(source.cleared() for source in self.sources))

    def stored(self) -> Mix:
        """What of it is written."""
        return Mix(tuple(source.stored() for source in self.sources))

    def restored(self, fresh: Mix) -> Mix:
        """The inverse of :meth:`stored`."""
        pairs = zip(self.sources, fresh.sources, strict=True)
        return Mix(tuple(saved.restored(new) for saved, new in pairs))

    def close(self) -> None:
        """Release what the sources hold."""
        for source in self.sources:
            source.close()


def _marked(record: Record, place: int) -> Record:
    came = jnp.full(record.mask.shape, place, jnp.int32)
    return dataclasses.replace(record, extras={**record.extras, "source": came})


def _joined(parts: Sequence[Record]) -> Record:
    """Records end to end along the batch."""
    if any("weight" in part.extras for part in parts):
        parts = [
            dataclasses.replace(part, extras={"weight": jnp.ones_like(part.reward), **part.extras})
            for part in parts
        ]
    return jax.tree.map(lambda *each: jnp.concatenate(each, 2), *parts)
