"""What the updates of one iteration draw from, and the draws that need no more than an array.

A source's ``collect`` answers with itself and with its *draws*: who learns is given batch after
batch of them, seed by seed, inside one compiled program. The random numbers of all updates are
drawn before the first (``chances``), the rows of an update only when it is its turn (``draw``), so
that one batch at a time is held, and what an update found out (``heed``) is known to the next.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Int, Key, PyTree

from sterling import keys as named
from sterling.actor import Actor
from sterling.types import Feed, Record, Signals


@runtime_checkable
class Draws(Protocol):
    """What the updates of one iteration draw from."""

    @property
    def heard(self) -> PyTree:
        """What the updates change of the source, leaves ``(seed, ...)``; None: nothing."""
        ...

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        ...

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """What is settled before the feed's first update, ``(seed, update, ...)``; for a feed of
        all that was lived ``(seed, ...)``."""
        ...

    def draw(self, feed: Feed, seed: Int[Array, ""], heard: PyTree, chance: PyTree) -> Record:
        """One update's batch, of the seed at this place of the seed axis; ``heard`` and ``chance``
        are that seed's and that update's."""
        ...

    def heed(self, feed: Feed, heard: PyTree, signals: Signals, batch: Record) -> PyTree:
        """What one seed's update found out of the ``batch`` it was given, told to the source."""
        ...


@runtime_checkable
class Source(Protocol):
    """Where experience comes from: an immutable tree, and what every one of them offers.

    Sources compose: one that wraps another hands on what it does not change.
    """

    @property
    def traced(self) -> bool:
        """Whether collecting may be compiled."""
        ...

    @property
    def tally(self) -> Any:
        """Episodes finished since it was last cleared; None where none is lived."""
        ...

    @property
    def worlds(self) -> tuple[Any, ...]:
        """The worlds that experience comes from."""
        ...

    @property
    def visits(self) -> int:
        """It is visited on the host before every so-manyth iteration, the first included; 0:
        never."""
        ...

    def visit(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Source, Any]:
        """A moment on the host between two compiled dispatches, for whoever cannot be compiled: a
        person who labels, a solver. Answers with the source and the agent as they go on."""
        ...

    def warm(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Source:
        """What is lived before the first update, by ``chance`` or as ``agent`` acts itself."""
        ...

    def collect(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Source, Draws]:
        """One iteration's experience of all seeds, and what its updates draw from."""
        ...

    def hearing(self, heard: PyTree) -> Source:
        """After the iteration's updates; ``heard`` as they left it."""
        ...

    def cleared(self) -> Source:
        """With an empty tally."""
        ...

    def stored(self) -> Source:
        """What of it is written with a run."""
        ...

    def restored(self, fresh: Any) -> Source:
        """The inverse of :meth:`stored`: what was not written is that of ``fresh``."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Unheard:
    """Of draws whose source is not changed by what is learned."""

    heard = None

    def heed(self, feed: Feed, heard: PyTree, signals: Signals, batch: Record) -> PyTree:
        """What was drawn stays as it is."""
        return heard


class Ready(eqx.Module):
    """Batches that are there already: all that was lived ``(seed, ...)``, or several in turn
    ``(seed, update, ...)``."""

    record: Record
    heard: PyTree = None

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return self.record.mask.shape[1 if feed.whole else 2]

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> Record:
        """The batches."""
        return self.record

    def draw(self, feed: Feed, seed: Int[Array, ""], heard: PyTree, chance: Record) -> Record:
        """The batch whose turn it is."""
        return chance

    def heed(self, feed: Feed, heard: PyTree, signals: Signals, batch: Record) -> PyTree:
        """What was drawn stays as it is."""
        return heard


class Unvisited:
    """Of sources that are never visited."""

    visits = 0

    def visit(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Any, Any]:
        """Nothing is done."""
        return self, agent


class Still(Unvisited):
    """Of sources that neither live nor learn: a log, texts, what was written before."""

    tally = None
    worlds = ()

    def warm(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Any:
        """Nothing is lived."""
        return self

    def hearing(self, heard: PyTree) -> Any:
        """What is written does not change."""
        return self

    def cleared(self) -> Any:
        """Itself: nothing was counted."""
        return self

    def close(self) -> None:
        """Nothing is held."""


class Wrapped:
    """Of sources around another, ``source``: whatever they do not say themselves is its own."""

    source: Any

    traced = property(lambda self: self.source.traced, doc="Whether collecting may be compiled.")
    tally = property(lambda self: self.source.tally, doc="Episodes finished.")
    worlds = property(lambda self: self.source.worlds, doc="That experience comes from.")
    visits = property(lambda self: self.source.visits, doc="Iterations between two visits.")

    def visit(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Any, Any]:
        """What ``source`` does on the host."""
        source, agent = self.source.visit(agent, keys)
        return self._around(source), agent

    def warm(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Any:
        """What ``source`` lives before the first update."""
        return self._around(self.source.warm(agent, keys, chance=chance))

    def hearing(self, heard: PyTree) -> Any:
        """With what ``source`` was told."""
        return self._around(self.source.hearing(heard))

    def cleared(self) -> Any:
        """With an empty tally."""
        return self._around(self.source.cleared())

    def stored(self) -> Any:
        """What of it is written."""
        return self._around(self.source.stored())

    def restored(self, fresh: Any) -> Any:
        """The inverse of :meth:`stored`."""
        return self._around(self.source.restored(fresh.source))

    def close(self) -> None:
        """Release what ``source`` holds."""
        self.source.close()

    def _around(self, source: Any) -> Any:
        own: Any = self
        return dataclasses.replace(own, source=source)


def keys_of(feed: Feed, keys: Key[Array, "seed"]) -> Key[Array, "seed"]:
    """A feed's own keys, where it has a name: several feeds draw apart."""
    return named.fold_each(keys, feed.name) if feed.name else keys
