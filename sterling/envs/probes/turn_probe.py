"""The probe task of two sides that move in turn: what one side gains, the other loses.

The first mover observes 0 and chooses the stake: 1 (action 0) or a half (action 1). The second
observes the stake and wins it with action 1 or loses it with action 0. So the second mover does 1,
the first chooses a half, and its value is -gamma / 2. A learner that adds what the other side gains
would choose the stake 1 and expect gamma.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key, Num

NAMES = ("turns",)
HALF = 0.5


@dataclasses.dataclass(frozen=True)
class TurnProbe:
    """Two moves, as a :class:`sterling.envs.traced_world.Task`; the state is the observation."""

    alternating: ClassVar = True
    obs: ClassVar = spaces.Box(0.0, 1.0, (1,), np.float32)
    action: ClassVar = spaces.Discrete(2)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, "1"], Float[Array, "1"]]:
        """Start without a stake."""
        return jnp.zeros(1), jnp.zeros(1)

    def step(
        self, state: Float[Array, "1"], action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Choose the stake, or win or lose it."""
        second = state[0] > 0.0
        stake = jnp.where(action == 1, HALF, 1.0)
        reward = jnp.where(second, state[0] * jnp.where(action == 1, 1.0, -1.0), 0.0)
        seen = jnp.where(second, state, stake)
        return seen, seen, reward, second, jnp.zeros((), bool)

    def solution(self, gamma: float) -> tuple[Num[np.ndarray, "row 1"], list[float], list[int]]:
        """Return observations, the value of best play for the side that observes them, and its
        actions."""
        obs = np.array([[0.0], [HALF], [1.0]], np.float32)
        return obs, [-gamma * HALF, HALF, 1.0], [1, 1, 1]


def make_turn_probe(name: str) -> TurnProbe:
    """Return the probe called ``name``, one of ``NAMES``."""
    return TurnProbe()
