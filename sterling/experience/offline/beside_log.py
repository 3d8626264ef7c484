"""Add rows of the run's dataset beside the batches of another source, for feeds that ask for them:
demonstrations for a discriminator, or for a loss beside that of a learner's own experience."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Int, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.data.dataset import Dataset
from sterling.experience.batch_draws import Due, SourceWrapper, every_feed
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.needs.beside_laws import Anywhere
from sterling.types import AnyNeeds, Feed, Needs, Record, Signals


class BesideLog(SourceWrapper, eqx.Module):
    """Adds rows of ``log`` to the batches of ``source``; feeds share nothing but the log."""

    source: Any
    log: DatasetSource

    @classmethod
    def create(cls, source: Any, dataset: Dataset, needs: AnyNeeds, sampling: str) -> BesideLog:
        """Create the source for the feeds of ``needs`` that have rows of the log beside them."""
        found = []
        for feed in needs.feeds:
            for each in feed.log_beside:
                assert isinstance(each.law, Anywhere)  # the only law of a log beside a batch
                when: Any = {"every": feed.every, "after": feed.after, "until": feed.until}
                updates = 1 if feed.whole else feed.updates
                name = _log_feed(feed, each.name)
                found.append(Feed(name=name, batch=each.law.rows, updates=updates, **when))
        return cls(source, DatasetSource.create(dataset, Needs(feeds=tuple(found)), sampling))

    @property
    def traced(self) -> bool:
        """Whether collecting can be compiled."""
        return bool(self.source.traced and self.log.traced)

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[BesideLog, BesideLogDraws]:
        """Collect with ``source``; from a log larger than memory, read the rows now."""
        source, draws = self.source.collect(agent, keys, due)
        _, rows = self.log.collect(agent, named.fold_each(keys, "log"), due)
        return dataclasses.replace(self, source=source), BesideLogDraws(draws, rows, self.log.needs)

    def to_checkpoint(self) -> BesideLog:
        """Drop the log: its file holds it."""
        return BesideLog(self.source.to_checkpoint(), self.log.to_checkpoint())

    def from_checkpoint(self, fresh: BesideLog) -> BesideLog:
        """Return the saved source, with the log of ``fresh``."""
        return BesideLog(self.source.from_checkpoint(fresh.source), fresh.log)


class BesideLogDraws(eqx.Module):
    """The batches of ``draws``, with rows of a log beside them."""

    draws: Any
    log: Any  # draws of the log's rows, by feeds of their own
    log_needs: AnyNeeds = eqx.field(static=True)

    feedback = property(
        lambda self: self.draws.feedback, doc="State of the source that updates change."
    )

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch, without those beside it."""
        return int(self.draws.rows(feed))

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Draw the random numbers of the batches, and of what stands beside them."""
        chances = {}
        for each in feed.log_beside:
            own = self._own_feed(feed, each.name)
            found = self.log.presample(own, named.fold_each(keys, own.name))
            if feed.whole:  # which has one update, and no axis of them
                found = jax.tree.map(lambda x: x[:, 0], found)
            chances[each.name] = found
        return self.draws.presample(feed, keys), chances

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: PyTree, sample: PyTree) -> Record:
        """Return the next batch."""
        inner, chances = sample
        batch: Record = self.draws.draw(feed, seed, feedback, inner)
        found = {
            name: self.log.draw(self._own_feed(feed, name), seed, None, chance)
            for name, chance in chances.items()
        }
        return dataclasses.replace(batch, beside=batch.beside | found)

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Pass an update's signals on to the source."""
        return self.draws.heed(feed, feedback, signals, batch)

    def _own_feed(self, feed: Feed, name: str) -> Feed:
        return self.log_needs.feed(_log_feed(feed, name))


def _log_feed(feed: Feed, name: str) -> str:
    """Return the name of the log's own feed for what stands beside a feed's batches."""
    return f"{feed.name}/{name}"
