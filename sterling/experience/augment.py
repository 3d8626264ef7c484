"""A source whose draws are changed before they are learned from."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key

from sterling import keys as named
from sterling.actor import Actor
from sterling.equations.augmentation import Change
from sterling.experience.rollout import Tally
from sterling.types import Record, Signals


class Augment(eqx.Module):
    """Gives ``change(record, key)`` of what ``source`` draws, each seed with a key of its own.

    ``change`` keeps a record's shapes: see :mod:`sterling.equations.augmentation`. What ``source``
    keeps, such as a replay, is not changed, and what was found out is told to it as it is.
    """

    source: Any
    change: Change = eqx.field(static=True)

    @property
    def needs(self) -> Any:
        """What ``source`` was asked for."""
        return self.source.needs

    @property
    def sources(self) -> tuple[Any, ...]:
        """Where experience comes from."""
        return tuple(getattr(self.source, "sources", (self.source,)))

    @property
    def traced(self) -> bool:
        """Whether drawing may be compiled."""
        return self.source.traced

    @property
    def tally(self) -> Tally | None:
        """Episodes lived in ``source``."""
        return self.source.tally

    def draw(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Augment, Record]:
        """What ``source`` draws, changed."""
        source, record = self.source.draw(agent, keys)
        fresh = _changed(self.change, record, named.fold_each(keys, "augment"))
        return dataclasses.replace(self, source=source), fresh

    def heed(self, signals: Signals) -> Augment:
        """Tell ``source``."""
        return dataclasses.replace(self, source=self.source.heed(signals))

    def cleared(self) -> Augment:
        """With an empty tally."""
        return dataclasses.replace(self, source=self.source.cleared())

    def stored(self) -> Augment:
        """What of it is written."""
        return dataclasses.replace(self, source=self.source.stored())

    def restored(self, fresh: Augment) -> Augment:
        """The inverse of :meth:`stored`."""
        return dataclasses.replace(self, source=self.source.restored(fresh.source))

    def close(self) -> None:
        """Release what ``source`` holds."""
        self.source.close()


def _vmapped(change: Change, record: Record, keys: Key[Array, "seed"]) -> Record:
    return jax.vmap(change)(record, keys)


_changed = jax.jit(_vmapped, static_argnums=0)  # for draws on the host, once for each change
