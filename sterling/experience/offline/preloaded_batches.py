"""Batches of a log larger than memory, read on the host before an iteration's updates."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from sterling.experience.batch_draws import Due, NoFeedback, every_feed, feed_keys
from sterling.types import Anywhere, Feed, Mistake, Record


class PreloadedBatches(NoFeedback, eqx.Module):
    """Batches of a dataset larger than memory, read before the updates."""

    batches: dict[str, Record]  # by feed, ``(seed, update, batch, ...)``

    @classmethod
    def load(cls, logged: Any, keys: Key[Array, "seed"], due: Due = every_feed) -> PreloadedBatches:
        """Read one iteration's batches of every feed that is due, of a source of a log; of others
        the log's first row, repeated, for the shapes."""
        none, batches = jnp.zeros((), jnp.int32), {}
        for feed in logged.needs.feeds:
            own = feed_keys(feed, keys)
            if due(feed):
                index = logged.presample(feed, own)
                batches[feed.name] = logged.draw(feed, none, None, index)
                continue
            kinds = jax.eval_shape(lambda feed=feed, own=own: logged.presample(feed, own))
            first = jax.tree.map(lambda x: jnp.zeros((1, 1, 1, *x.shape[3:]), x.dtype), kinds)
            row = logged.draw(feed, none, None, first)
            batches[feed.name] = _repeated(row, feed, jax.tree.leaves(kinds)[0].shape[:2])
        return cls(batches)

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return self.batches[feed.name].mask.shape[2]

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> Record:
        """Return the batches themselves."""
        return self.batches[feed.name]

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: None, sample: Record) -> Record:
        """Return this update's batch. Raises Mistake if n-step sums change from update to
        update."""
        if feed.n_step_now is not None:
            raise Mistake(
                "n-step rewards of a dataset larger than memory are summed before the updates, but "
                "this learner changes n_step or gamma during them; keep both fixed"
            )
        return sample


def _repeated(row: Record, feed: Feed, shape: tuple[int, ...]) -> Record:
    """Return a batch ``(seed, update, batch, ...)`` of one row, and of the rows beside it."""
    counts = {x.name: x.law.rows for x in feed.own_beside if isinstance(x.law, Anywhere)}

    def repeated(record: Record, rows: int) -> Record:
        own = dataclasses.replace(record, beside={})
        return jax.tree.map(lambda x: np.broadcast_to(x, (*shape, rows, *x.shape[3:])), own)

    found = {
        name: repeated(each, counts.get(name, feed.batch)) for name, each in row.beside.items()
    }
    return dataclasses.replace(repeated(row, feed.batch), beside=found)
