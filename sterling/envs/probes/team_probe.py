"""Probe tasks of three agents: each agent acts in its own copy of one probe.

So each agent must find what the single agent of that probe must find, whatever the others do. A
learner that mixes agents up, learns from another agent's reward, or takes an agent that has left
for one that stays, finds something else. In ``limits`` agents leave after one step while others
stay.

  parting       every agent is paid 1 a step. ``left`` is cut off alone after two steps, ``middle``
                ends after one, and the episode is cut after four: only ``middle`` is worth 1, the
                others are worth 1 for ever, 1/(1 - gamma)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key, Num, PyTree

from sterling import random_keys
from sterling.envs.traced_world import tree_where
from sterling.problem.agent_axis import ALIVE, TRUNCATED, joint
from sterling.types import Obs

AGENT_NAMES = ("left", "middle", "right")
PARTING = "parting-team"
PARTING_STEPS = (2, 1, 4)  # after which each agent of ``parting`` is gone
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


class PartingTeam:
    """Three agents who leave in three ways, as a :class:`sterling.envs.traced_world.Task`."""

    agents = AGENT_NAMES

    def __init__(self) -> None:
        count = len(AGENT_NAMES)
        one = spaces.Box(-GONE_OBSERVATION, GONE_OBSERVATION, (1,), np.float32)
        status = dict.fromkeys((ALIVE, TRUNCATED), spaces.MultiBinary(count))
        self.obs = spaces.Dict({"observation": joint(one, count), **status})
        self.action = joint(spaces.Discrete(2), count)

    def reset(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Obs]:
        """Start with all agents."""
        time = jnp.zeros((), jnp.int32)
        return time, self._observe(time)

    def step(
        self, time: Int[Array, ""], action: Int[Array, "agent"], key: Key[Array, ""]
    ) -> tuple[Any, ...]:
        """Pay those that are there."""
        paid = (time < jnp.array(PARTING_STEPS)).astype(jnp.float32)
        after = time + 1
        over = after >= max(PARTING_STEPS)
        return after, self._observe(after), paid, jnp.zeros((), bool), over

    def solution(self, gamma: float) -> TeamSolution:
        """Return what each agent must find at an episode's start."""
        forever = 1.0 / (1.0 - gamma)
        obs = jax.tree.map(lambda x: np.asarray(x)[None], self._observe(jnp.zeros((), jnp.int32)))
        return TeamSolution(obs, np.array([[forever, 1.0, forever]], np.float32), None)

    def _observe(self, time: Int[Array, ""]) -> Obs:
        """Show 0 to those that are there or have just been cut off."""
        steps = jnp.array(PARTING_STEPS)
        is_cut = jnp.array([True, False, False]) & (time == steps)
        # the last agent is cut off with the episode, so it stays
        alive = (time < steps) | (steps == max(PARTING_STEPS))
        seen = jnp.where(alive | is_cut, 0.0, GONE_OBSERVATION)[:, None]
        status = {ALIVE: alive.astype(jnp.int8), TRUNCATED: is_cut.astype(jnp.int8)}
        return {"observation": seen, **status}
