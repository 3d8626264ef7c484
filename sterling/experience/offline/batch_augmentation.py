"""A source that augments batches before they are learned from."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Int, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.equations.transition_augmentation import Augmentation
from sterling.experience.batch_draws import Draws, Due, SourceWrapper, every_feed
from sterling.types import Feed, Record, Signals


class Augment(SourceWrapper, eqx.Module):
    """Apply ``change(record, key)`` to every batch of ``source``, each with its own key.

    ``change`` keeps a record's shapes: see :mod:`sterling.equations.transition_augmentation`. What
    ``source`` stores, such as a replay buffer, is not changed, and feedback reaches it unchanged.
    """

    source: Any
    change: Augmentation = eqx.field(static=True)

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Augment, AugmentedDraws]:
        """Collect with ``source``; its batches are augmented as they are drawn."""
        source, draws = self.source.collect(agent, keys, due)
        return dataclasses.replace(self, source=source), AugmentedDraws(draws, self.change)


class AugmentedDraws(eqx.Module):
    """The batches of ``draws``, augmented."""

    draws: Any
    change: Augmentation = eqx.field(static=True)

    feedback = property(
        lambda self: self.draws.feedback, doc="State of the source that updates change."
    )

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return self.draws.rows(feed)

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> tuple[PyTree, Key[Array, "..."]]:
        """Return the inner draws' random numbers, and an augmentation key for each batch."""
        draws: Draws = self.draws
        each = jax.vmap(lambda key: named.split(key, "augment", feed.updates))(keys)
        return draws.presample(feed, keys), each

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: PyTree, sample: PyTree) -> Record:
        """Return the next batch, augmented; rows beside it are changed by the same chance."""
        own, key = sample
        batch = self.draws.draw(feed, seed, feedback, own)
        beside = {name: self.change(each, key) for name, each in batch.beside.items()}
        return dataclasses.replace(self.change(batch, key), beside=beside)

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Pass an update's signals on to the source."""
        return self.draws.heed(feed, feedback, signals, batch)
