"""Delayed experience: a policy learns from batches that were collected some iterations ago."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from sterling.experience.batch_draws import Draws, Due, SourceWrapper, every_feed
from sterling.types import Record


class DelayedSource(SourceWrapper, eqx.Module):
    """Returns each batch of ``source`` ``lag`` draws later.

    This simulates how far learning lags behind acting when both run at the same time, exactly and
    repeatably. The first ``lag`` batches are also returned at once, because there are no older
    ones, and again when they are due. The source's ``batch_note`` is stored with each
    batch; the source gets it back (``for_batch``) before it hears what was learned from the batch.
    """

    source: Any
    waiting: tuple[tuple[Record, Any], ...]  # batches with the source's notes, oldest first
    seen: Int[Array, ""]  # number of draws so far

    @classmethod
    def create(cls, source: Any, lag: int, blank: Record) -> DelayedSource:
        """Create the source without waiting batches; ``blank`` is a batch of the right shapes."""
        return cls(source, ((blank, source.batch_note),) * lag, jnp.zeros((), jnp.int32))

    @property
    def rows(self) -> int:
        """Return the number of rows in a batch."""
        return self.source.rows

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[DelayedSource, Draws]:
        """Collect a batch, and return the one from ``lag`` draws before."""
        source, draws = self.source.collect(agent, keys, due)
        latest, ready = (draws.record, source.batch_note), self.seen >= len(self.waiting)
        oldest, note = jax.tree.map(
            lambda old, new: jnp.where(ready, old, new), self.waiting[0], latest
        )
        source = source.for_batch(note)
        draws = source.draws_of(oldest)
        return DelayedSource(source, (*self.waiting[1:], latest), self.seen + 1), draws
