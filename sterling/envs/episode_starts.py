"""Where episodes begin, set from outside: in a given level, or in an earlier state of the world.

  state = world.assign_start(state, Start(level=levels), given)    # levels ``(seed, env, ...)``
  state = world.assign_start(state, world.current_start(earlier, obs), given)    # an earlier state

From their next reset on, the envs that are ``given`` a start begin every episode there, until they
are given another. With ``now`` that reset is the very next step, a masked row that belongs to no
episode. Envs that were never given a start begin as usual. The first call adds leaves to the state,
so a loop that assigns starts needs one call before it, for which ``given`` may be False everywhere.
Without any call, the compiled program is the same as that of a world without starts.

Only worlds that are compiled here support this; others raise Mistake (:func:`require_startable`).
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Int, PyTree

from sterling.types import Mistake, Obs


class Start(eqx.Module):
    """Where an episode begins, leaves ``(seed, env, ...)``: in a ``level``; or, if that is None, in
    a ``state`` of the task, ``elapsed`` steps after its start, in which ``obs`` was observed."""

    level: PyTree = None
    state: PyTree = None
    elapsed: Int[Array, "..."] | None = None
    obs: Obs = None


@runtime_checkable
class StartableWorld(Protocol):
    """A world whose episodes can be made to begin in a given start.

    ``book`` holds the levels of a world with a fixed number of levels, leaves ``(level, ...)``, and
    is None for other worlds.
    """

    @property
    def book(self) -> PyTree:
        """The levels that episodes begin in."""

    def assign_start(
        self, state: PyTree, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> PyTree:
        """Return the world's state with ``start`` assigned to the envs that are ``given`` it."""

    def current_start(self, state: PyTree, obs: Obs) -> Start:
        """Return the current state as a start; ``obs`` is its observation. Useless where an episode
        has just ended."""


def require_startable(world: Any) -> StartableWorld:
    """Return the world itself; raises Mistake if its episodes cannot be given a start."""
    if not isinstance(world, StartableWorld):
        raise Mistake(
            f"{type(world).__name__} cannot begin an episode in a given start. Use a native "
            "environment, one of gymnax, or a Task."
        )
    return world
