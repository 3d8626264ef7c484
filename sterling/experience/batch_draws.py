"""The protocols of sources and of what updates draw from, and base classes for both.

A source's ``collect`` returns itself and its *draws*: the learner takes batch after batch from
them, seed by seed, inside one compiled program. The random numbers of all updates are drawn before
the first update (``presample``); the rows of a batch only when it is needed (``draw``). So one
batch at a time is in memory, and the results of an update (``heed``) are known to the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.experience.stored_rows import RowsToStore, with_stored_rows
from sterling.types import Feed, Record, Signals

Due = Callable[[Feed], Any]  # whether a feed gives batches in an iteration; may be traced


def every_feed(feed: Feed) -> bool:
    """Return True: every feed is due."""
    return True


def has_rest(source: Any) -> bool:
    """Whether ``collect`` of a source, or of one inside it, left something to collect while the
    learner learns."""
    return bool(getattr(source, "has_rest", False))


def collect_rest(source: Any) -> Any:
    """Return the source after it has collected what its ``collect`` left, if anything."""
    return source.collect_rest() if has_rest(source) else source


@runtime_checkable
class Draws(Protocol):
    """The interface from which the updates of one iteration draw their batches."""

    @property
    def feedback(self) -> PyTree:
        """The state of the source that updates change, leaves ``(seed, ...)``; None: none."""
        ...

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        ...

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Draw the random numbers of all updates of a feed, leaves ``(seed, update, ...)``; for a
        feed of all fresh experience ``(seed, ...)``."""
        ...

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: PyTree, sample: PyTree) -> Record:
        """Return one update's batch, for the seed at index ``seed`` of the seed axis.

        ``feedback`` and ``sample`` are that seed's and that update's.
        """
        ...

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Return ``feedback`` after one seed's update on ``batch`` returned ``signals``."""
        ...


@runtime_checkable
class Source(Protocol):
    """The interface of all sources of experience; a source is an immutable tree.

    Sources compose: one that wraps another forwards whatever it does not change.
    """

    @property
    def traced(self) -> bool:
        """Whether collecting can be compiled."""
        ...

    @property
    def tally(self) -> Any:
        """Statistics of the episodes finished since the last reset; None if the source has no
        episodes."""
        ...

    @property
    def worlds(self) -> tuple[Any, ...]:
        """The worlds that experience comes from."""
        ...

    @property
    def visits(self) -> int:
        """Number of iterations between two host visits, the first before the first iteration; 0:
        never."""
        ...

    def visit(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Source, Any]:
        """Run host code between two compiled dispatches (a person who labels, a solver); return the
        new source and agent."""
        ...

    def warm_up(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Source:
        """Collect the warm-up before the first update, by random actions (``chance``) or by
        ``agent``."""
        ...

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Source, Draws]:
        """Collect one iteration's experience of all seeds; return the new source and its draws.
        Nothing is read or imagined for a feed that is not ``due``."""
        ...

    def with_feedback(self, feedback: PyTree) -> Source:
        """Return the source after the iteration's updates, with ``feedback`` as they left it."""
        ...

    def reset_statistics(self) -> Source:
        """Return the source with an empty tally."""
        ...

    def to_checkpoint(self) -> Source:
        """Return the part of the source that a checkpoint saves."""
        ...

    def from_checkpoint(self, fresh: Any) -> Source:
        """Return the saved source, completed with what a checkpoint does not hold from
        ``fresh``."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


@runtime_checkable
class StoredRows(Source, Protocol):
    """The interface of sources that store rows, from which a learned model can be rolled out."""

    @property
    def summed(self) -> tuple[str, ...]:
        """The kept extras that n-step returns sum, as they do rewards."""
        ...

    def starts(
        self, count: int, keys: Key[Array, "seed"]
    ) -> tuple[Record, Bool[Array, "seed count"]]:
        """Return ``count`` rows of every seed, ``(seed, count, ...)``, and which of them are
        experience."""
        ...


class NoFeedback:
    """Base class of draws whose source is not changed by learning."""

    feedback = None

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """No-op: learning does not change this source."""
        return feedback


class PreparedBatches(eqx.Module):
    """Batches that exist before the updates: all fresh experience ``(seed, ...)``, or one per
    update ``(seed, update, ...)``."""

    record: Record
    feedback: PyTree = None

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return self.record.mask.shape[1 if feed.whole else 2]

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> Record:
        """Return the batches themselves."""
        return self.record

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: PyTree, sample: Record) -> Record:
        """Return this update's batch."""
        return sample

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """No-op: learning does not change this source."""
        return feedback


class NoVisits:
    """Base class of sources without host visits."""

    visits = 0

    def visit(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Any, Any]:
        """No-op: return the source and the agent unchanged."""
        return self, agent


class StaticSource(NoVisits):
    """Base class of sources that collect nothing and learn nothing: datasets, texts, recorded
    batches."""

    tally = None
    worlds = ()

    def warm_up(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Any:
        """No-op: nothing is collected."""
        return self

    def with_feedback(self, feedback: PyTree) -> Any:
        """No-op: learning does not change this source."""
        return self

    def reset_statistics(self) -> Any:
        """No-op: this source has no tally."""
        return self

    def close(self) -> None:
        """No-op: this source holds no resources."""


class SourceWrapper:
    """Base class of sources around another one, ``source``, to which everything not overridden is
    forwarded."""

    source: Any

    traced = property(lambda self: self.source.traced, doc="Whether collecting can be compiled.")
    tally = property(lambda self: self.source.tally, doc="Statistics of finished episodes.")
    worlds = property(lambda self: self.source.worlds, doc="The worlds that experience comes from.")
    visits = property(
        lambda self: self.source.visits, doc="Iterations between two host visits; 0: never."
    )
    has_rest = property(
        lambda self: has_rest(self.source), doc="Whether `collect_rest` has something to collect."
    )

    def visit(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Any, Any]:
        """Forward the host visit to ``source``."""
        source, agent = self.source.visit(agent, keys)
        return self._around(source), agent

    def warm_up(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Any:
        """Forward the warm-up to ``source``."""
        return self._around(self.source.warm_up(agent, keys, chance=chance))

    def collect_rest(self) -> Any:
        """Let ``source`` collect what it left."""
        return self._around(collect_rest(self.source))

    def with_feedback(self, feedback: PyTree) -> Any:
        """Pass the state that updates changed on to ``source``."""
        return self._around(self.source.with_feedback(feedback))

    def with_stored_rows(self, stored: dict[str, RowsToStore]) -> Any:
        """Pass the kept extras that updates changed on to ``source``."""
        return self._around(with_stored_rows(self.source, stored))

    def reset_statistics(self) -> Any:
        """Return the source with an empty tally."""
        return self._around(self.source.reset_statistics())

    def to_checkpoint(self) -> Any:
        """Return the part that a checkpoint saves."""
        return self._around(self.source.to_checkpoint())

    def from_checkpoint(self, fresh: Any) -> Any:
        """Return the saved source, completed with what a checkpoint does not hold from
        ``fresh``."""
        return self._around(self.source.from_checkpoint(fresh.source))

    def close(self) -> None:
        """Release the resources of ``source``."""
        self.source.close()

    def _around(self, source: Any) -> Any:
        own: Any = self
        return dataclasses.replace(own, source=source)


def feed_keys(feed: Feed, keys: Key[Array, "seed"]) -> Key[Array, "seed"]:
    """Return the random keys of a feed; named feeds draw from keys of their own."""
    return named.fold_each(keys, feed.name) if feed.name else keys
