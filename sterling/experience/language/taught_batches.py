"""A frozen teacher beside the batches of a source: learners compute its probabilities themselves.

All seeds share the one teacher, and no checkpoint holds it: a resumed run reads its folder again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
from jaxtyping import Array, Int, Key, PyTree

from sterling.experience.batch_draws import Due, SourceWrapper, every_feed
from sterling.language.models.causal_lm import LanguageModel
from sterling.types import Feed, Record, Signals

TEACHER = "teacher"  # its name in ``Record.beside``


class TaughtSource(SourceWrapper, eqx.Module):
    """A source whose batches have the teacher in ``beside``."""

    source: Any
    teacher: LanguageModel | None  # leaves without a seed axis; None in a checkpoint

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[TaughtSource, TaughtDraws]:
        """Collect a batch of ``source``."""
        source, draws = self.source.collect(agent, keys, due)
        assert self.teacher is not None  # a checkpoint's source is completed before it collects
        return TaughtSource(source, self.teacher), TaughtDraws(draws, self.teacher)

    def to_checkpoint(self) -> TaughtSource:
        """Return the source without the teacher."""
        return TaughtSource(self.source.to_checkpoint(), None)

    def from_checkpoint(self, fresh: TaughtSource) -> TaughtSource:
        """Return the saved source, with the teacher of ``fresh``."""
        return TaughtSource(self.source.from_checkpoint(fresh.source), fresh.teacher)


class TaughtDraws(eqx.Module):
    """Batches of ``inner`` with the teacher beside them."""

    inner: Any
    teacher: LanguageModel

    feedback = property(lambda self: self.inner.feedback, doc="The state that updates change.")

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        rows: int = self.inner.rows(feed)
        return rows

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Draw the random numbers of ``inner``."""
        return self.inner.presample(feed, keys)

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: PyTree, sample: PyTree) -> Record:
        """Return this update's batch, with the teacher."""
        batch = self.inner.draw(feed, seed, feedback, sample)
        return dataclasses.replace(batch, beside={**batch.beside, TEACHER: self.teacher})

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Pass the signals on to ``inner``, with the batch that it made."""
        beside = {name: x for name, x in batch.beside.items() if name != TEACHER}
        own = dataclasses.replace(batch, beside=beside)
        return self.inner.heed(feed, feedback, signals, own)
