"""What windows of a replay are told anew before their rewards are summed."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Key, PyTree

from sterling.experience.storage import Place, Ring
from sterling.types import Obs, Record


class Rows(NamedTuple):
    """What may be told anew of windows: of each row how it was rewarded and whether the episode
    went on, and of all their observations alike the entries that are others."""

    reward: Float[Array, "... step"]
    discount: Float[Array, "... step"]
    last: Bool[Array, "... step"]
    seen: dict[str, Array]  # entries of a dict observation, ``(..., *entry)``

    def shown(self, obs: Obs) -> Obs:
        """The observation with these entries in place of its own."""
        return {**obs, **self.seen} if self.seen else obs


@runtime_checkable
class Relabel(Protocol):
    """A change of a replay's windows, made whenever they are drawn; a tree, part of the replay.

    Hindsight is one (``hindsight.py``). It knows nothing of the learner.
    """

    def insert(self, ring: Ring, record: Record) -> Any:
        """Itself, knowing of rows ``(seed, time, env, ...)`` that ``ring`` is to be given next."""

    def chances(self, keys: Key[Array, "seed"], shape: tuple[int, int]) -> PyTree:
        """The randomness of ``(update, batch)`` windows, leaves ``(seed, update, batch, ...)``."""

    def relabelled(self, ring: Ring, window: Place, rows: Rows, chance: PyTree) -> Rows:
        """The rows at these places ``(batch, step)`` of one seed, as they are to be told."""

    def shaped(self, rows: int) -> Any:
        """Shapes and types of itself beside a ring with room for ``rows``."""

    def grown(self, ring: Ring, rows: int) -> Any:
        """Itself, once ``ring`` has room for ``rows``."""
