"""Catch (Mnih 2014; bsuite, Osband 2020): a ball falls through a grid, a paddle must be under it.

The best return is 1, that of random play near -0.6.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces


class Catch:
    """A Task: an environment as pure functions of JAX, compiled into the training program."""

    def __init__(self, rows: int = 8, columns: int = 5):
        self.rows, self.columns = rows, columns
        self.obs = spaces.Box(0.0, 1.0, (rows, columns), np.float32)
        self.action = spaces.Discrete(3)  # left, stay, right

    def reset(self, key):
        column = jax.random.randint(key, (), 0, self.columns)
        state = jnp.stack([jnp.zeros((), column.dtype), column, column * 0 + self.columns // 2])
        return state, self.picture(state)

    def picture(self, state):
        """Return the grid, with 1 where the ball and the paddle are."""
        row, column, paddle = state
        grid = jnp.zeros((self.rows, self.columns)).at[row, column].set(1.0)
        return grid.at[self.rows - 1, paddle].set(1.0)

    def step(self, state, action, key):
        row, column, paddle = state
        paddle = jnp.clip(paddle + action - 1, 0, self.columns - 1)
        state = jnp.stack([row + 1, column, paddle])
        ended = state[0] == self.rows - 1
        reward = jnp.where(ended, jnp.where(paddle == column, 1.0, -1.0), 0.0)
        return state, self.picture(state), reward, ended, jnp.zeros((), bool)


def make(rows: int = 8, columns: int = 5) -> Catch:
    """Return the task; `--env rows=10` sets an argument."""
    return Catch(rows, columns)
