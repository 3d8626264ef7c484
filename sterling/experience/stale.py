"""Experience that waits: what a policy learns from was said some iterations ago."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from sterling.types import Record, Signals


class Stale(eqx.Module):
    """Draws from ``source`` and hands on what was drawn ``lag`` draws before.

    That is how far learning lags behind acting where both go on at the same time; here it is exact
    and repeatable. The first ``lag`` batches are handed on at once, as there is nothing older, and
    again when they are due. With each batch waits the source's ``note`` of it; the source is put
    in mind of that (``about``) before it hears what was learned from the batch.
    """

    source: Any
    waiting: tuple[tuple[Record, Any], ...]  # with the source's notes, oldest first
    seen: Int[Array, ""]  # draws so far

    @classmethod
    def create(cls, source: Any, lag: int, blank: Record) -> Stale:
        """Nothing waits yet; ``blank`` is a batch of the right shapes."""
        return cls(source, ((blank, source.note),) * lag, jnp.zeros((), jnp.int32))

    @property
    def traced(self) -> bool:
        """Whether drawing may be compiled."""
        return self.source.traced

    @property
    def world(self) -> Any:
        """The source's."""
        return self.source.world

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.source.rows

    @property
    def tally(self) -> Any:
        """The source's."""
        return self.source.tally

    def draw(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Stale, Record]:
        """A batch that is ``lag`` draws old."""
        source, batch = self.source.draw(agent, keys)
        latest, ready = (batch, source.note), self.seen >= len(self.waiting)
        oldest, note = jax.tree.map(
            lambda old, new: jnp.where(ready, old, new), self.waiting[0], latest
        )
        return Stale(source.about(note), (*self.waiting[1:], latest), self.seen + 1), oldest

    def heed(self, signals: Signals) -> Stale:
        """Tell the source, which has the batch in mind that was learned from."""
        return Stale(self.source.heed(signals), self.waiting, self.seen)

    def cleared(self) -> Stale:
        """With an empty tally."""
        return Stale(self.source.cleared(), self.waiting, self.seen)

    def stored(self) -> Stale:
        """All of it is written."""
        return Stale(self.source.stored(), self.waiting, self.seen)

    def restored(self, fresh: Stale) -> Stale:
        """The inverse of :meth:`stored`."""
        return Stale(self.source.restored(fresh.source), self.waiting, self.seen)

    def close(self) -> None:
        """Release what the source holds."""
        self.source.close()
