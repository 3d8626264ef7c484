"""A source whose batches are changed before they are learned from."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Int, Key, PyTree

from sterling import keys as named
from sterling.actor import Actor
from sterling.equations.augmentation import Change
from sterling.experience.draws import Draws, Wrapped
from sterling.types import Feed, Record, Signals


class Augment(Wrapped, eqx.Module):
    """Gives ``change(record, key)`` of every batch of ``source``, each with a key of its own.

    ``change`` keeps a record's shapes: see :mod:`sterling.equations.augmentation`. What ``source``
    keeps, such as a replay, is not changed, and what was found out is told to it as it is.
    """

    source: Any
    change: Change = eqx.field(static=True)

    def collect(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Augment, Changed]:
        """What ``source`` collects; its batches are changed as they are drawn."""
        source, draws = self.source.collect(agent, keys)
        return dataclasses.replace(self, source=source), Changed(draws, self.change)


class Changed(eqx.Module):
    """The batches of ``draws``, changed."""

    draws: Any
    change: Change = eqx.field(static=True)

    heard = property(lambda self: self.draws.heard, doc="What updates change of the source.")

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return self.draws.rows(feed)

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> tuple[PyTree, Key[Array, "..."]]:
        """Those of the batches, and a key for each of them."""
        draws: Draws = self.draws
        each = jax.vmap(lambda key: named.deal(key, "augment", feed.updates))(keys)
        return draws.chances(feed, keys), each

    def draw(self, feed: Feed, seed: Int[Array, ""], heard: PyTree, chance: PyTree) -> Record:
        """The next batch, changed."""
        own, key = chance
        return self.change(self.draws.draw(feed, seed, heard, own), key)

    def heed(self, feed: Feed, heard: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Tell the source."""
        return self.draws.heed(feed, heard, signals, batch)
