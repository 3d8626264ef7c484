"""Choices of which the first count, and are paid in the last step: for methods that find out which
step earned what."""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Key


class Delayed:
    """Each step shows -1 or 1; the right action is 0 or 1. Best: 1 an episode; at random: 0."""

    obs, action = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(2)
    length, counted = 50, 5  # steps of an episode, and those of them whose choices are paid

    def reset(self, key: Key[Array, ""]) -> tuple:
        """Begin an episode."""
        state = jnp.zeros(()), jnp.zeros(()), self.drawn(key)
        return state, self.seen(state)

    def drawn(self, key: Key[Array, ""]) -> Array:
        """Return -1 or 1."""
        return jnp.where(jax.random.bernoulli(key), 1.0, -1.0)

    def seen(self, state: tuple) -> Array:
        """Return the sign, and the share of the episode that is over."""
        return jnp.stack([state[2], state[0] / self.length])

    def step(self, state: tuple, action: Array, key: Key[Array, ""]) -> tuple:
        """Count the choice if it is an early one; pay in the last step."""
        time, total, sign = state
        right = jnp.where((action == 1) == (sign > 0), 1.0, -1.0)
        total += jnp.where(time < self.counted, right, 0.0)
        state = time + 1.0, total, self.drawn(key)
        ended = state[0] == self.length
        reward = jnp.where(ended, total / self.counted, 0.0)
        return state, self.seen(state), reward, ended, jnp.zeros((), bool)
