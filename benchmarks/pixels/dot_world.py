"""A dot that is moved to a target, seen as a grey picture: continuous actions from pixels.

The picture has 24 x 24 bytes: a square of 3 pixels at the target (grey) and one at the dot (white).
An action moves the dot by up to 2 pixels in each direction. The reward of a step is 1 less the
distance to the target in units of half the picture, at least 0; an episode has 25 steps. Random
play gets 6.5, and moving straight to the target 23.3 (the means of 2,000 episodes).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

SIDE, REACH, STEPS = 24, 2.0, 25
EDGE = 2.0  # pixels that centres keep from the edge


class Dot:
    """A Task (``sterling/envs/traced_world.py``); the state is the dot, the target and the time."""

    obs = spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
    action = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, key):
        """Place dot and target at random."""
        places = jax.random.uniform(key, (2, 2), minval=EDGE, maxval=SIDE - 1 - EDGE)
        state = jnp.concatenate([places.reshape(-1), jnp.zeros(1)])
        return state, self.picture(state)

    def picture(self, state):
        """Return the picture, each square with soft edges."""
        centres = state[:4].reshape(2, 2)
        off = jnp.abs(jnp.arange(SIDE, dtype=jnp.float32)[None, None, :] - centres[:, :, None])
        cover = jnp.clip(2.0 - off, 0.0, 1.0)
        squares = cover[:, 0, :, None] * cover[:, 1, None, :]
        return jnp.round(jnp.maximum(255.0 * squares[0], 110.0 * squares[1])).astype(jnp.uint8)

    def step(self, state, action, key):
        """Move the dot; end the episode after its steps, as a time limit does."""
        dot = jnp.clip(state[:2] + REACH * action, EDGE, SIDE - 1 - EDGE)
        distance = jnp.sqrt(jnp.sum(jnp.square(dot - state[2:4])))
        reward = jnp.maximum(1.0 - distance / (SIDE / 2), 0.0)
        state = jnp.concatenate([dot, state[2:4], state[4:] + 1.0])
        cut = state[4] >= STEPS
        return state, self.picture(state), reward, jnp.zeros((), bool), cut


def make() -> Dot:
    """Return the task."""
    return Dot()
