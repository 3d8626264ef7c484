"""One seed's agent as compiled functions that a Python loop can call quickly.

A call of an Equinox module's jitted method takes the module apart in Python, which costs more than
a small network. Here the agent's arrays are taken apart once, and the random key is derived inside
the program.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from sterling import random_keys
from sterling.actor import Past
from sterling.experience import acting
from sterling.training.agent import Agent
from sterling.types import Step

MAX_PROGRAMS = 64  # kept for agents of different shapes


class SingleSeedActor:
    """An agent of one seed, whose arrays have a seed axis of length 1."""

    def __init__(self, agent: Agent, seed: int, explore: bool):
        leaves, form = jax.tree.flatten(agent)
        self._own = tuple(leaves), jnp.asarray([seed], jnp.int32)
        self._choose, self._follow = _programs(form, explore)
        self._past_form: Any = None

    def remember(self, past: Past | None) -> Any:
        """Return a past in the form that ``choose`` takes: its arrays alone."""
        leaves, self._past_form = jax.tree.flatten(past)
        return None if past is None else tuple(leaves)

    def past(self, kept: Any) -> Past | None:
        """Return what ``remember`` or ``follow`` returned as a past again."""
        return None if kept is None else jax.tree.unflatten(self._past_form, kept)

    def choose(self, past: Any, obs: PyTree, counter: int) -> tuple[Any, PyTree]:
        """Return the actions ``(1, env, ...)`` for observations ``(env, ...)``, and the new memory;
        ``counter`` determines the random key. ``past`` comes from ``remember`` or ``follow``."""
        action, memory = self._choose(self._own, past, obs, counter, past_form=self._past_form)
        return action, memory

    def follow(self, memory: PyTree, action: Any, answer: tuple[Any, ...], counter: int) -> Any:
        """Return the past for the next step, given the environment's answer: the reward, whether
        the episode has ended, and the channels by name ``(1, 1, ...)``."""
        return self._follow(self._own, memory, action, answer, counter)


@functools.lru_cache(maxsize=MAX_PROGRAMS)
def _programs(form: Any, explore: bool) -> tuple[Any, Any]:
    """Return the compiled functions for agents of one structure."""

    @functools.partial(jax.jit, static_argnames="past_form")
    def choose(own: Any, past: Any, obs: Any, counter: Any, *, past_form: Any) -> Any:
        leaves, seed = own
        agent = jax.tree.unflatten(form, leaves)
        past = None if past is None else jax.tree.unflatten(past_form, past)
        keys = random_keys.for_seeds(seed, "policy", counter)
        every = jax.tree.map(lambda x: jnp.asarray(x)[None], obs)
        action, memory, _ = acting.choose(agent, past, every, keys, explore)
        return action, memory

    @jax.jit
    def follow(own: Any, memory: Any, action: Any, answer: Any, counter: Any) -> Any:
        (leaves, seed), (reward, last, channels), shape = own, answer, (1, 1)
        agent = jax.tree.unflatten(form, leaves)
        keys = random_keys.for_seeds(seed, "policy-memory", counter)
        rewards = jnp.full(shape, reward, jnp.float32)
        going_on = ~jnp.full(shape, last, bool)
        ones, never = jnp.ones(shape), jnp.zeros(shape, bool)
        step = Step(None, rewards, ones, never, going_on, channels=channels)
        return tuple(jax.tree.leaves(acting.next_past(agent, memory, action, step, keys)))

    return choose, follow
