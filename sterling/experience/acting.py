"""One path by which actors act: by what they see, or also by what they remember.

An actor that remembers is given a :class:`~sterling.actor.Past`: its memory, what was really done
in the step before, whoever chose it, and what the world answered. All of it begins anew in the row
in which the world resets, not in an episode's last row: the value of what follows a cut is asked of
the memory that led there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium.spaces import Space
from jaxtyping import Array, Key, PyTree

from sterling.actor import Actor, Past, Remembering, Seeing
from sterling.envs.traced import select
from sterling.nets.heads import Actions
from sterling.types import Action, AnyArray, Obs, Step


def begin(
    actor: Actor, space: Space[Any], shape: tuple[int, int], keys: Key[Array, "seed"]
) -> Past | None:
    """The past before the first step of ``shape`` (seeds, environments of each), where actions are
    of ``space``; None where ``actor`` acts by what it sees alone."""
    memory = memory_of(actor, shape[1], keys)
    if memory is None:
        return None
    action = Actions.of(space).nothing(shape)
    return Past(memory, action, jnp.zeros(shape), jnp.ones(shape), jnp.ones(shape, bool))


def memory_of(actor: Actor, envs: int, keys: Key[Array, "seed"]) -> PyTree:
    """A memory of nothing for ``envs`` environments of every seed, or None."""
    return actor.memory(envs, keys) if isinstance(actor, Remembering) else None


def of(past: Past | None, memory: PyTree) -> Past | None:
    """The same past with another memory; None where there is no memory."""
    if past is None or memory is None:
        return None
    return dataclasses.replace(past, memory=memory)


def choose(
    actor: Actor, past: Past | None, obs: Obs, keys: Key[Array, "seed"], explore: bool
) -> tuple[Action, PyTree, dict[str, Array]]:
    """Actions for ``(seed, env, ...)`` observations, what is remembered from now on, and what is
    to be recorded; ``begins`` in it says in which rows the memory began anew."""
    if past is None:
        assert isinstance(actor, Seeing)
        action, extras = actor.act(obs, keys, explore)
        return action, None, extras
    assert isinstance(actor, Remembering)
    action, memory, extras = actor.recall(past, obs, keys, explore)
    return action, memory, {**extras, "begins": past.first}


def answered(
    actor: Actor, memory: PyTree, action: Action, step: Step, keys: Key[Array, "seed"]
) -> Past | None:
    """The past of the next step, after the world has answered ``action`` with ``step``."""
    if memory is None:
        return None
    first = ~jnp.asarray(step.mask)
    nothing = jax.tree.map(jnp.zeros_like, action)
    zeros, begun = jnp.zeros(first.shape), memory_of(actor, first.shape[1], keys)
    fresh = Past(begun, nothing, zeros, zeros + 1.0, first)
    now = Past(memory, action, _number(step.reward), _number(step.discount), first)
    return select(first, fresh, now)


def _number(x: AnyArray) -> Array:
    """A finite number: what a broken world answers must not stay in a memory."""
    return jnp.nan_to_num(jnp.asarray(x, jnp.float32))
