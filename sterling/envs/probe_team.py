"""Probe worlds of three agents: each lives in a copy of its own of one probe world.

What an agent must find is then what the agent of that world must find, whatever the others do, so a
learner that mixes the agents up, lets one learn from another's reward or takes one that is gone for
one that stays finds something else. In ``limits`` agents leave after one step while others stay.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Key, Num, PyTree

from sterling import keys
from sterling.agents import ALIVE, joint
from sterling.envs.traced import select
from sterling.types import Obs

NAMES = ("left", "middle", "right")
GONE = 50.0  # what is seen of an agent that is gone: nothing may be learned from it


class TeamState(eqx.Module):
    """The copies' states, and which agents are still there."""

    copies: PyTree
    alive: Bool[Array, "agent"]


@dataclasses.dataclass(frozen=True)
class TeamSolution:
    """The optimal value of every observation, and the best action where actions matter."""

    obs: dict[str, Num[np.ndarray, "row agent ..."]]
    value: Float[np.ndarray, "row agent"]
    action: Num[np.ndarray, "row agent ..."] | None  # None: any


class ProbeTeam:
    """Three copies of a probe world, a :class:`sterling.envs.traced.Task` of several agents.

    An agent whose copy ends is gone. The episode ends when all are, and is cut when a copy is.
    """

    agents = NAMES

    def __init__(self, one: Any):  # a Probe (envs/probe.py), which imports this file
        self.one, self.kind, self.continuous = one, one.kind, one.continuous
        self.action = joint(one.action, len(NAMES))
        seen = joint(spaces.Box(-GONE, GONE, (1,), np.float32), len(NAMES))
        self.obs = spaces.Dict({"observation": seen, ALIVE: spaces.MultiBinary(len(NAMES))})

    def reset(self, key: Key[Array, ""]) -> tuple[TeamState, Obs]:
        """Start every copy."""
        copies, seen = jax.vmap(self.one.reset)(keys.deal(key, "agent", len(NAMES)))
        alive = jnp.ones(len(NAMES), bool)
        return TeamState(copies, alive), {"observation": seen, ALIVE: alive.astype(jnp.int8)}

    def step(self, state: TeamState, action: Array, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Move in every copy whose agent is there."""
        own = keys.deal(key, "agent", len(NAMES))
        moved, seen, reward, ended, cut = jax.vmap(self.one.step)(state.copies, action, own)
        alive = state.alive & ~ended
        seen = jnp.where(alive[:, None], seen, GONE)
        after = TeamState(select(state.alive, moved, state.copies), alive)
        obs = {"observation": seen, ALIVE: alive.astype(jnp.int8)}
        return after, obs, jnp.where(state.alive, reward, 0.0), ~alive.any(), (cut & alive).any()

    def solution(self, gamma: float) -> TeamSolution:
        """What each agent must find, where all see the same."""
        alone = self.one.solution(gamma)

        def each(x: np.ndarray) -> np.ndarray:
            return np.stack([x] * len(NAMES), 1)

        alive = np.ones((len(alone.value), len(NAMES)), np.int8)
        action = None if alone.action is None else each(alone.action)
        obs = {"observation": each(alone.obs), ALIVE: alive}
        return TeamSolution(obs, each(alone.value), action)
