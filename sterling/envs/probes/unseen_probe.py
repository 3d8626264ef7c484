"""Probe tasks of entries that only critics get: the state determines the reward, observations are
0.

  hidden        one agent, which observes 0
  hidden-team   three agents, which observe 0, and one state for all of them

An episode is one step. The state is a random -1 or 1, and action a of 0 or 1 pays state + a: the
best action is always 1. With it, a critic that gets the state finds values 0 or 2, and one that
does not finds 1. An agent whose actions depend on the state has used what it must not see.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling.envs.hosted.shared_memory import OBSERVATION
from sterling.problem.agent_axis import joint
from sterling.problem.critic_only_obs import STATE
from sterling.types import Obs

NAMES = ("hidden", "hidden-team")
AGENTS = ("left", "middle", "right")


@dataclasses.dataclass(frozen=True)
class HiddenProbe:
    """The probe, as a :class:`sterling.envs.traced_world.Task`; its state is the entry for
    critics."""

    unseen: ClassVar = (STATE,)
    team: bool = False

    @property
    def agents(self) -> tuple[str, ...] | None:
        """The names of the agents, if there are several."""
        return AGENTS if self.team else None

    @property
    def obs(self) -> spaces.Dict:
        """A 0 for each agent, and the state once."""
        one = spaces.Box(-1.0, 1.0, (1,), np.float32)
        return spaces.Dict({OBSERVATION: joint(one, len(AGENTS)) if self.team else one, STATE: one})

    @property
    def action(self) -> spaces.Space[Any]:
        """Two choices, for each agent."""
        one = spaces.Discrete(2)
        return joint(one, len(AGENTS)) if self.team else one

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, "1"], Obs]:
        """Draw a state."""
        state = 2.0 * jax.random.bernoulli(key, shape=(1,)).astype(jnp.float32) - 1.0
        return state, self._observe(state)

    def step(
        self, state: Float[Array, "1"], action: Int[Array, "..."], key: Key[Array, ""]
    ) -> tuple[Any, ...]:
        """Pay each agent by its own action, and end the episode."""
        reward = state[0] + action.astype(jnp.float32)
        return state, self._observe(state), reward, jnp.ones((), bool), jnp.zeros((), bool)

    def solution(self) -> tuple[Obs, Float[np.ndarray, "row ..."]]:
        """Return one observation with each state, and its optimal value to a critic that gets the
        state, for each agent if there are several."""
        state = np.array([[-1.0], [1.0]], np.float32)
        seen = np.zeros((2, *self._shape), np.float32)
        value = np.repeat(state + 1.0, len(AGENTS), 1) if self.team else state[:, 0] + 1.0
        return {OBSERVATION: seen, STATE: state}, value

    @property
    def _shape(self) -> tuple[int, ...]:
        return (len(AGENTS), 1) if self.team else (1,)

    def _observe(self, state: Float[Array, "1"]) -> Obs:
        return {OBSERVATION: jnp.zeros(self._shape), STATE: state}


def make_hidden_probe(name: str) -> HiddenProbe:
    """Return the probe called ``name``, one of ``NAMES``."""
    return HiddenProbe(name.endswith("-team"))
