"""Whoever chooses the actions: by what is seen, or by what is remembered as well."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key, PyTree

from sterling.types import Action, Obs


class Past(eqx.Module):
    """What an actor remembers, and what really happened in the step before.

    Leaves begin with the axes of ``first``. Where ``first``, nothing happened in this episode yet:
    the memory is a new one, ``action`` and ``reward`` are 0 and ``discount`` is 1.
    """

    memory: PyTree
    action: Action  # the one taken, whoever chose it
    reward: Float[Array, "..."]
    discount: Float[Array, "..."]
    first: Bool[Array, "..."]


@runtime_checkable
class Seeing(Protocol):
    """An actor that goes by what it sees alone."""

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Actions for ``(seed, env, ...)`` observations, and extras to record beside them."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """An actor that goes by what it remembers too; experience/acting.py keeps it for it."""

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> PyTree:
        """A memory of nothing, leaves ``(seed, env, ...)``; None: what it sees is enough, and it
        offers ``act`` as well."""
        ...

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, PyTree, dict[str, Array]]:
        """Actions, the memory from now on, and extras to record beside them."""
        ...


Actor = Seeing | Remembering  # whoever chooses the actions
