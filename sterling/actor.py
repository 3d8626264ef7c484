"""Protocols of actors, which choose actions: from observations, or from a memory as well."""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key, PyTree

from sterling.types import Action, Obs


class Past(eqx.Module):
    """An actor's memory, and the action, reward and discount of the previous step.

    Leaves begin with the axes of ``first``. Where ``first`` is True, the episode has just begun:
    the memory is a new one, ``action``, ``reward`` and ``channels`` are 0 and ``discount`` is 1.
    """

    memory: PyTree  # as ``memory`` or ``recall`` returned it
    action: Action  # the action executed, even if chance or a guide chose it
    reward: Float[Array, "..."]  # of that step
    discount: Float[Array, "..."]  # of that step
    first: Bool[Array, "..."]  # whether the episode has just begun
    channels: dict[str, Array] = dataclasses.field(default_factory=dict)  # of that step


@runtime_checkable
class MemorylessActor(Protocol):
    """An actor that chooses actions from the current observation alone."""

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Return actions for ``(seed, env, ...)`` observations, and extras to record with them."""
        ...


@runtime_checkable
class RecurrentActor(Protocol):
    """An actor with a memory, such as a recurrent policy; experience/acting.py carries it."""

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> PyTree:
        """Return an empty memory, leaves ``(seed, env, ...)``; or None if the actor needs no
        memory, and then it offers ``act`` as well."""
        ...

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, PyTree, dict[str, Array]]:
        """Return actions, the new memory, and extras to record with the actions."""
        ...


Actor = MemorylessActor | RecurrentActor
