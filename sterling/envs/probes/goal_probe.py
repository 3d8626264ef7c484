"""Probe tasks for hindsight: only relabelled goals can teach anything.

  goals       a walk on a line, one place to either side per step; the goal is on another line

Each episode has its own line, a random number, begins at place 0 and is truncated after six steps.
The achieved goal is (line, place). Reaching the desired goal pays 1 and ends the episode; all other
rewards are 0. The desired goal is on another line, so it is never reached. Relabelled with a place
on its own line, an episode has a known value. A learner that takes goals achieved in other episodes
learns nothing, because lines do not meet; so does one that keeps the old rewards.

``goals-continuous`` has one action in [-1, 1]; its sign counts.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling.problem.goal_obs import ACHIEVED, DESIRED, OBSERVATION
from sterling.types import Obs

NAMES = ("goals", "goals-continuous")
CUT_AFTER = 6  # the time limit in steps: long enough to turn round
LINE_DISTANCE = 3.0  # between an episode's line and its goal's


class GoalAnswers(NamedTuple):
    """Observations with known answers: the optimal value, and the better direction."""

    obs: dict[str, Float[np.ndarray, "row _"]]
    value: Float[np.ndarray, "row"]
    right: np.ndarray  # bool (row,): whether right is better


class GoalProbeState(eqx.Module):
    """The line, the place, and the number of steps done."""

    line: Float[Array, ""]
    place: Float[Array, ""]
    time: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class GoalProbe:
    """The goal probe, as a :class:`sterling.envs.traced_world.Task` with goals."""

    continuous: bool = False

    @property
    def obs(self) -> spaces.Dict:
        """Line and place: the current ones, as observation and achieved goal, and the
        desired ones."""
        where = spaces.Box(-CUT_AFTER, CUT_AFTER, (2,), np.float32)
        return spaces.Dict(dict.fromkeys((OBSERVATION, ACHIEVED, DESIRED), where))

    @property
    def action(self) -> spaces.Space[Any]:
        """Left (0, or negative) or right (1, or positive)."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if self.continuous else spaces.Discrete(2)

    def reset(self, key: Key[Array, ""]) -> tuple[GoalProbeState, Obs]:
        """Start at place 0 of a new line."""
        line = jax.random.uniform(key, (), minval=-1.0, maxval=1.0)
        state = GoalProbeState(line, jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, _observe(state)

    def step(self, state: GoalProbeState, action: Array, key: Key[Array, ""]) -> Any:
        """Walk one place to the left or right."""
        right = action[0] > 0.0 if self.continuous else action == 1
        place = state.place + jnp.where(right, 1.0, -1.0)
        state = GoalProbeState(state.line, place, state.time + 1)
        obs = _observe(state)
        reward, discount = self.judge(obs[ACHIEVED], obs[DESIRED])
        return state, obs, reward, discount == 0.0, state.time >= CUT_AFTER

    def judge(
        self, achieved: Float[Array, "2"], desired: Float[Array, "2"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return reward and discount: (1, 0) where the goal is reached exactly, else (0, 1)."""
        reached = jnp.all(achieved == desired).astype(jnp.float32)
        return reached, 1.0 - reached

    def answers(self, gamma: float) -> GoalAnswers:
        """Return what an algorithm with discount ``gamma`` must find: from the middle, goals one
        and two steps to either side; from place 1 or -1, the goals one step further out."""
        ways = [(0.0, 1.0), (0.0, -1.0), (0.0, 2.0), (0.0, -2.0), (1.0, 2.0), (-1.0, -2.0)]
        lines = np.repeat(np.array([-0.6, 0.0, 0.6], np.float32), len(ways))
        place, wanted = np.tile(np.array(ways, np.float32).T, 3)
        here, reached = np.stack([lines, place], 1), np.stack([lines, wanted], 1)
        steps = np.abs(wanted - place)
        obs = {OBSERVATION: here, ACHIEVED: here, DESIRED: reached}
        return GoalAnswers(obs, (gamma ** (steps - 1.0)).astype(np.float32), wanted > place)


def _observe(state: GoalProbeState) -> dict[str, Float[Array, "2"]]:
    here = jnp.stack([state.line, state.place])
    wanted = jnp.stack([state.line + LINE_DISTANCE, jnp.zeros(())])
    return {OBSERVATION: here, ACHIEVED: here, DESIRED: wanted}


def make_goal_probe(name: str) -> GoalProbe:
    """Return the probe called ``name``, one of ``NAMES``."""
    return GoalProbe(name.endswith("-continuous"))
