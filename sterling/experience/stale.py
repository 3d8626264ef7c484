"""Experience that waits: what a policy learns from was said some iterations ago."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from sterling.experience.draws import Draws, Wrapped
from sterling.types import Record


class Stale(Wrapped, eqx.Module):
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
    def rows(self) -> int:
        """Rows of a batch."""
        return self.source.rows

    def collect(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Stale, Draws]:
        """A batch that is ``lag`` draws old."""
        source, draws = self.source.collect(agent, keys)
        latest, ready = (draws.record, source.note), self.seen >= len(self.waiting)
        oldest, note = jax.tree.map(
            lambda old, new: jnp.where(ready, old, new), self.waiting[0], latest
        )
        source = source.about(note)
        draws = source.said(oldest)
        return Stale(source, (*self.waiting[1:], latest), self.seen + 1), draws
