"""Probe worlds of what only critics see: the state says what a step is worth, observations nothing.

    hidden        one agent, which sees 0
    hidden-team   three agents, who see 0, with one state for all of them

An episode is one step. The state is -1 or 1 by chance, and action a of 0 or 1 pays state + a: the
best is always 1, and with it a critic that is given the state finds 0 or 2 where one without finds
1. An agent that acts by the state has looked where it must not.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling.agents import joint
from sterling.envs.board import PROPER
from sterling.types import Obs
from sterling.unseen import STATE

NAMES = ("hidden", "hidden-team")
AGENTS = ("left", "middle", "right")


@dataclasses.dataclass(frozen=True)
class Hidden:
    """The probe world, a :class:`sterling.envs.traced.Task`; its state is what critics see."""

    unseen: ClassVar = (STATE,)
    team: bool = False

    @property
    def agents(self) -> tuple[str, ...] | None:
        """Names, where there are several."""
        return AGENTS if self.team else None

    @property
    def obs(self) -> spaces.Dict:
        """For each agent nothing but a 0, and the state once."""
        one = spaces.Box(-1.0, 1.0, (1,), np.float32)
        return spaces.Dict({PROPER: joint(one, len(AGENTS)) if self.team else one, STATE: one})

    @property
    def action(self) -> spaces.Space[Any]:
        """Two choices."""
        one = spaces.Discrete(2)
        return joint(one, len(AGENTS)) if self.team else one

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, "1"], Obs]:
        """Draw a state."""
        state = 2.0 * jax.random.bernoulli(key, shape=(1,)).astype(jnp.float32) - 1.0
        return state, self._seen(state)

    def step(
        self, state: Float[Array, "1"], action: Int[Array, "..."], key: Key[Array, ""]
    ) -> tuple[Any, ...]:
        """Pay, each agent by its own action, and end."""
        reward = state[0] + action.astype(jnp.float32)
        return state, self._seen(state), reward, jnp.ones((), bool), jnp.zeros((), bool)

    def solution(self) -> tuple[Obs, Float[np.ndarray, "row ..."]]:
        """Observations, one with each state, and their optimal value, for each agent where there
        are several, to a critic that sees the state."""
        state = np.array([[-1.0], [1.0]], np.float32)
        seen = np.zeros((2, *self._shape), np.float32)
        value = np.repeat(state + 1.0, len(AGENTS), 1) if self.team else state[:, 0] + 1.0
        return {PROPER: seen, STATE: state}, value

    @property
    def _shape(self) -> tuple[int, ...]:
        return (len(AGENTS), 1) if self.team else (1,)

    def _seen(self, state: Float[Array, "1"]) -> Obs:
        return {PROPER: jnp.zeros(self._shape), STATE: state}


def hidden(name: str) -> Hidden:
    """The probe world called ``name``, one of ``NAMES``."""
    return Hidden(name.endswith("-team"))
