"""The interface for relabelling a replay buffer's windows before their rewards are summed."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Key, PyTree

from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.types import Obs, Record


class WindowRows(NamedTuple):
    """The parts of windows that may be relabelled: every row's reward, discount and ``last``, and
    observation entries that are replaced in all of a window's observations."""

    reward: Float[Array, "... step"]
    discount: Float[Array, "... step"]
    last: Bool[Array, "... step"]
    seen: dict[str, Array]  # replacements for entries of a dict observation, ``(..., *entry)``

    def replace_entries(self, obs: Obs) -> Obs:
        """Return the observation with its entries replaced by ``seen``."""
        return {**obs, **self.seen} if self.seen else obs


@runtime_checkable
class Relabeller(Protocol):
    """Relabels a replay buffer's windows whenever they are drawn; a tree that is part of the
    buffer.

    Hindsight is one (``hindsight_replay.py``). A relabeller knows nothing of the learner.
    """

    def insert(self, ring: Ring, record: Record) -> Any:
        """Return the relabeller with rows ``(seed, time, env, ...)`` that are about to be added to
        ``ring``."""

    def presample(self, keys: Key[Array, "seed"], shape: tuple[int, int]) -> PyTree:
        """Draw the random numbers of ``(update, batch)`` windows, leaves ``(seed, update, batch,
        ...)``."""

    def relabel_windows(
        self, ring: Ring, window: Place, rows: WindowRows, chance: PyTree
    ) -> WindowRows:
        """Return the relabelled rows at these places ``(batch, step)`` of one seed."""

    def shapes_with_capacity(self, rows: int) -> Any:
        """Return its shapes and dtypes at a ring capacity of ``rows``."""

    def with_capacity(self, ring: Ring, rows: int) -> Any:
        """Return the relabeller after ``ring`` grows to a capacity of ``rows``."""
