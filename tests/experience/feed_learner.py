"""A learner that draws from one feed, looks at every number of its batches and learns nothing."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from sterling import random_keys
from sterling.nets.action_heads import Actions
from sterling.types import Needs, Record, Signals, config


@config
class Config:
    """Its settings."""

    gamma: float = 0.9  # discount


class State(eqx.Module):
    """How many batches it got."""

    updates: jax.Array
    config: Config
    actions: Actions = eqx.field(static=True)


class FeedLearner:
    """An algorithm with the feed that it is given."""

    Config = Config
    __name__ = "feed-learner"

    def __init__(self, feed, keep=()):
        self.feed, self.keep = feed, keep

    def needs(self, config):
        """Ask for the feed."""
        warmup = 0 if self.feed.whole else 64
        return Needs(4, (self.feed,), capacity=400, warmup=warmup, keep=self.keep)

    def init(self, key, spec, config):
        """Create an agent."""
        return State(jnp.zeros(()), config, Actions.from_space(spec.action))

    def act(self, state, obs, key, explore):
        """Return random actions, and a number to record with them."""
        rows = jax.tree.leaves(obs)[0].shape[0]
        return state.actions.shaped(self._anything(state, rows, key)), {"luck": jnp.ones(rows)}

    def member(self, state, key, env):
        """Return the agent itself."""
        return state

    def _anything(self, state, rows, key):
        logits = jnp.zeros((rows, state.actions.outputs))
        return state.actions.distribution(logits, log_std=jnp.zeros(state.actions.outputs)).sample(
            random_keys.fold(key, "act")
        )

    def imagine(self, state, rows, valid, key):
        """Return two steps in which nothing happens."""

        def twice(x):
            return jnp.broadcast_to(x[None], (2, *x.shape))

        obs, action = (jax.tree.map(twice, x) for x in (rows.obs, rows.action))
        ones, never = jnp.ones((2, valid.size)), jnp.zeros((2, valid.size), bool)
        return Record(obs, action, ones, ones, obs, never, twice(valid), {"doubt": 2.0 * ones})

    def learn(self, state, batch, key):
        """Count the batch, and report the mean of all its numbers."""
        leaves = jax.tree.leaves(dataclasses.replace(batch, start=None))
        numbers = [jnp.mean(jnp.asarray(x, jnp.float32)) for x in leaves]
        seen = jnp.mean(jnp.nan_to_num(jnp.stack(numbers), neginf=0.0))
        error = jnp.zeros(batch.mask.shape[:1])
        state = dataclasses.replace(state, updates=state.updates + 1.0)
        return state, Signals({"seen": seen}, {"td_error": error} if self.feed.priority else {})
