"""Where episodes begin, told to a world from outside: in a level, or where it has been before.

    state = world.assign(state, Start(level=levels), given)      # levels ``(seed, env, ...)``
    state = world.assign(state, world.here(earlier, obs), given)     # back to an earlier state

From the next reset of the envs that are ``given`` on, their episodes begin there, all of them,
until they are given something else; with ``now`` that reset comes in the very next step, a masked
row which belongs to no episode. What has never been given anything begins as it always does. The
first ``assign`` makes room in the state, so a loop that assigns needs one before it, in which
nobody may be ``given`` anything; without any, a world is the same program as before.

Worlds that are compiled here can do so; others raise Mistake (:func:`able`).
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Int, PyTree

from sterling.types import Mistake, Obs


class Start(eqx.Module):
    """Where an episode begins, leaves ``(seed, env, ...)``: in a ``level``; or, where that is None,
    in a ``state`` of the task in which ``elapsed`` steps had passed and ``obs`` was seen."""

    level: PyTree = None
    state: PyTree = None
    elapsed: Int[Array, "..."] | None = None
    obs: Obs = None


@runtime_checkable
class Able(Protocol):
    """What worlds offer that can be told where an episode begins; ``book`` holds the levels of a
    world whose levels are a fixed number, ``(level, ...)``, and is None elsewhere."""

    @property
    def book(self) -> PyTree:
        """The levels that episodes begin in."""

    def assign(
        self, state: PyTree, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> PyTree:
        """The state of a world that was told."""

    def here(self, state: PyTree, obs: Obs) -> Start:
        """Where it is, after it has shown ``obs``; of no use where an episode has just ended."""


def able(world: Any) -> Able:
    """The world itself; raises Mistake where it cannot be told."""
    if not isinstance(world, Able):
        raise Mistake(
            f"{type(world).__name__} cannot be told where an episode begins; native worlds, those "
            "of gymnax and Tasks can"
        )
    return world
