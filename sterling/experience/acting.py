"""Let actors choose actions, with or without a memory; everything that acts goes through here.

An actor with a memory is given a :class:`~sterling.actor.Past`: its memory, the action that was
really taken in the step before (whoever chose it), and the world's answer. All of it is reset in
the row in which the world resets, not in an episode's last row: the value of the observation after
a truncation is computed with the memory that led there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval
from jaxtyping import Array, Key, PyTree

from sterling.actor import Actor, MemorylessActor, Past, RecurrentActor
from sterling.envs.traced_world import tree_where
from sterling.nets.action_heads import Actions
from sterling.types import Action, AnyArray, Obs, Spec, Step


def initial_past(
    actor: Actor, spec: Spec, shape: tuple[int, int], keys: Key[Array, "seed"]
) -> Past | None:
    """Return the past before the first step, or None if ``actor`` has no memory.

    ``shape`` is (seeds, environments per seed); ``spec`` is the world's, with its action space and
    channels.
    """
    memory = initial_memory(actor, shape[1], keys)
    if memory is None:
        return None
    action = Actions.from_space(spec.action).nothing(shape)
    none = {name: jnp.zeros((*shape, *each.shape)) for name, each in spec.channels.items()}
    return Past(memory, action, jnp.zeros(shape), jnp.ones(shape), jnp.ones(shape, bool), none)


def initial_memory(actor: Actor, envs: int, keys: Key[Array, "seed"]) -> PyTree:
    """Return an empty memory for ``envs`` environments of every seed; None if ``actor`` has
    none."""
    return actor.memory(envs, keys) if isinstance(actor, RecurrentActor) else None


def without_planning(actor: Actor) -> Actor:
    """Return the actor that acts without planning; ``actor`` itself if it does not plan."""
    plain: Callable[[], Actor] | None = getattr(actor, "without_planning", None)
    return actor if plain is None else plain()


def with_memory(past: Past | None, memory: PyTree) -> Past | None:
    """Return ``past`` with another memory; None if there is no memory."""
    if past is None or memory is None:
        return None
    return dataclasses.replace(past, memory=memory)


def choose(
    actor: Actor, past: Past | None, obs: Obs, keys: Key[Array, "seed"], explore: bool
) -> tuple[Action, PyTree, dict[str, Array]]:
    """Return the actions for ``(seed, env, ...)`` observations, the new memory, and the extras to
    record.

    For actors with a memory, ``extras["begins"]`` marks the rows in which the memory was reset.
    """
    if past is None:
        assert isinstance(actor, MemorylessActor)
        action, extras = actor.act(obs, keys, explore)
        return action, None, extras
    assert isinstance(actor, RecurrentActor)
    action, memory, extras = actor.recall(past, obs, keys, explore)
    return action, memory, {**extras, "begins": past.first}


def next_past(
    actor: Actor, memory: PyTree, action: Action, step: Step, keys: Key[Array, "seed"]
) -> Past | None:
    """Return the past for the next step, given the world's answer ``step`` to ``action``."""
    if memory is None:
        return None
    first = ~jnp.asarray(step.mask)
    nothing = jax.tree.map(jnp.zeros_like, action)
    zeros, begun = jnp.zeros(first.shape), initial_memory(actor, first.shape[1], keys)
    told = {name: _as_finite_float(x) for name, x in step.channels.items()}
    fresh = Past(begun, nothing, zeros, zeros + 1.0, first, jax.tree.map(jnp.zeros_like, told))
    answer = _as_finite_float(step.reward), _as_finite_float(step.discount)
    return tree_where(first, fresh, Past(memory, action, *answer, first, told))


def read_channels(actor: Actor, past: Past, obs: Obs, keys: Key[Array, "seed"]) -> tuple[str, ...]:
    """Return the names of the channels of the previous step that the actor acts by."""

    def chosen(channels: dict[str, Array]) -> Any:
        return choose(actor, dataclasses.replace(past, channels=channels), obs, keys, False)[:2]

    traced = jax.make_jaxpr(chosen)(past.channels).jaxpr
    _, used = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
    return tuple(name for name, read in zip(sorted(past.channels), used, strict=True) if read)


def _as_finite_float(x: AnyArray) -> Array:
    """Replace NaN and infinities, so that a broken world's answers do not stay in a memory."""
    return jnp.nan_to_num(jnp.asarray(x, jnp.float32))
