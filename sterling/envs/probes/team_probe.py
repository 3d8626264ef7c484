"""Probe tasks of three agents: each agent acts in its own copy of one probe.

So each agent must find what the single agent of that probe must find, whatever the others do. A
learner that mixes agents up, learns from another agent's reward, or takes an agent that has left
for one that stays, finds something else. In ``limits`` agents leave after one step while others
stay.
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

from sterling import random_keys
from sterling.envs.traced_world import tree_where
from sterling.problem.agent_axis import ALIVE, joint
from sterling.types import Obs

AGENT_NAMES = ("left", "middle", "right")
GONE_OBSERVATION = 50.0  # the observation of an agent that has left: never to be learned from


class TeamState(eqx.Module):
    """The states of the copies, and which agents are still there."""

    copies: PyTree
    alive: Bool[Array, "agent"]


@dataclasses.dataclass(frozen=True)
class TeamSolution:
    """The optimal value of every observation, and the best action if actions matter."""

    obs: dict[str, Num[np.ndarray, "row agent ..."]]
    value: Float[np.ndarray, "row agent"]
    action: Num[np.ndarray, "row agent ..."] | None  # None: any


class ProbeTeam:
    """Three copies of a probe, as a :class:`sterling.envs.traced_world.Task` of several agents.

    An agent whose copy ends leaves. The episode ends when all have left, and is truncated when a
    copy is truncated.
    """

    agents = AGENT_NAMES

    def __init__(self, one: Any):  # a Probe (envs/probes/probe_worlds.py), which imports this file
        self.one, self.kind, self.continuous = one, one.kind, one.continuous
        self.action = joint(one.action, len(AGENT_NAMES))
        seen = joint(
            spaces.Box(-GONE_OBSERVATION, GONE_OBSERVATION, (1,), np.float32), len(AGENT_NAMES)
        )
        self.obs = spaces.Dict({"observation": seen, ALIVE: spaces.MultiBinary(len(AGENT_NAMES))})

    def reset(self, key: Key[Array, ""]) -> tuple[TeamState, Obs]:
        """Start every copy."""
        copies, seen = jax.vmap(self.one.reset)(random_keys.split(key, "agent", len(AGENT_NAMES)))
        alive = jnp.ones(len(AGENT_NAMES), bool)
        return TeamState(copies, alive), {"observation": seen, ALIVE: alive.astype(jnp.int8)}

    def step(self, state: TeamState, action: Array, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Step every copy whose agent is still there."""
        own = random_keys.split(key, "agent", len(AGENT_NAMES))
        moved, seen, reward, ended, cut = jax.vmap(self.one.step)(state.copies, action, own)
        alive = state.alive & ~ended
        seen = jnp.where(alive[:, None], seen, GONE_OBSERVATION)
        after = TeamState(tree_where(state.alive, moved, state.copies), alive)
        obs = {"observation": seen, ALIVE: alive.astype(jnp.int8)}
        return after, obs, jnp.where(state.alive, reward, 0.0), ~alive.any(), (cut & alive).any()

    def solution(self, gamma: float) -> TeamSolution:
        """Return what each agent must find when all see the same observation."""
        alone = self.one.solution(gamma)

        def each(x: np.ndarray) -> np.ndarray:
            return np.stack([x] * len(AGENT_NAMES), 1)

        alive = np.ones((len(alone.value), len(AGENT_NAMES)), np.int8)
        action = None if alone.action is None else each(alone.action)
        obs = {"observation": each(alone.obs), ALIVE: alive}
        return TeamSolution(obs, each(alone.value), action)
