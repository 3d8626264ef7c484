"""Delayed experience: a policy learns from batches that were collected some iterations ago."""

from __future__ import annotations

import dataclasses
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

    With ``ahead`` both do run at the same time, with the same results: the batch that is due is
    returned first, and :meth:`collect_rest` collects the new one while the learner learns.
    """

    source: Any
    waiting: tuple[tuple[Record, Any], ...]  # batches with the source's notes, oldest first
    seen: Int[Array, ""]  # number of draws so far
    ahead: bool = eqx.field(static=True, default=False)  # collect while the learner learns
    begun: Any = None  # arguments with which collect_rest is to collect a batch

    @classmethod
    def create(cls, source: Any, lag: int, blank: Record, *, ahead: bool = False) -> DelayedSource:
        """Create the source without waiting batches; ``blank`` is a batch of the right shapes."""
        waiting = ((blank, source.batch_note),) * lag
        return cls(source, waiting, jnp.zeros((), jnp.int32), ahead)

    @property
    def rows(self) -> int:
        """Return the number of rows in a batch."""
        return self.source.rows

    @property
    def has_rest(self) -> bool:
        """Whether :meth:`collect_rest` has a batch to collect."""
        return self.begun is not None

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[DelayedSource, Draws]:
        """Return the batch from ``lag`` draws before, and collect one, or with ``ahead`` leave that
        to :meth:`collect_rest`."""
        if self.ahead and int(self.seen) >= len(self.waiting):
            oldest, note = self.waiting[0]
            begun = dataclasses.replace(self, begun=(agent, keys, due))
            return begun, self.source.for_batch(note).draws_of(oldest)
        source, draws = self.source.collect(agent, keys, due)
        latest, ready = (draws.record, source.batch_note), self.seen >= len(self.waiting)
        oldest, note = jax.tree.map(
            lambda old, new: jnp.where(ready, old, new), self.waiting[0], latest
        )
        source = source.for_batch(note)
        return self._after(source, latest), source.draws_of(oldest)

    def collect_rest(self) -> DelayedSource:
        """Collect the batch that :meth:`collect` left, by the agent as it was then."""
        source, draws = self.source.collect(*self.begun)
        latest, note = (draws.record, source.batch_note), self.waiting[0][1]
        return self._after(source.for_batch(note), latest)

    def _after(self, source: Any, latest: tuple[Record, Any]) -> DelayedSource:
        """Return this source after a draw that left ``source``, with the latest batch waiting."""
        return DelayedSource(source, (*self.waiting[1:], latest), self.seen + 1, self.ahead)
