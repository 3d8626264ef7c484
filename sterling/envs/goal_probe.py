"""Probe worlds of goals, in which only what is told anew in hindsight can teach anything.

    goals       a line, walked one place to either side a step; wanted is a place on another line

An episode has a line of its own, any number, begins at place 0 and is cut after six steps. Achieved
is (line, place). Reaching what is wanted brings 1 and ends; nothing else brings anything. Since a
place on another line is wanted, no step of it ever does; but a place of one's own line can be
wanted too, and what it is worth is known. Who takes what other episodes achieved for wanted learns
nothing, for lines do not meet; who judges a step as before learns nothing either.

Named ``goals-continuous`` it has one action in [-1, 1], of which the sign counts.
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

from sterling.goals import ACHIEVED, DESIRED, OBSERVATION
from sterling.types import Obs

NAMES = ("goals", "goals-continuous")
CUT_AFTER = 6  # steps: there is time to turn round
APART = 3.0  # between one's own line and that of the place that is wanted


class Asked(NamedTuple):
    """Observations of which the answers are known: the optimal value, and which side is better."""

    obs: dict[str, Float[np.ndarray, "row _"]]
    value: Float[np.ndarray, "row"]
    right: np.ndarray  # bool (row,): to the right


class GoalProbeState(eqx.Module):
    """Line and place, and how many steps of the episode are done."""

    line: Float[Array, ""]
    place: Float[Array, ""]
    time: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class GoalProbe:
    """The probe world, a :class:`sterling.envs.traced.Task` with goals."""

    continuous: bool = False

    @property
    def obs(self) -> spaces.Dict:
        """Line and place: those that one is at, twice, and those that are wanted."""
        where = spaces.Box(-CUT_AFTER, CUT_AFTER, (2,), np.float32)
        return spaces.Dict(dict.fromkeys((OBSERVATION, ACHIEVED, DESIRED), where))

    @property
    def action(self) -> spaces.Space[Any]:
        """Left or right."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if self.continuous else spaces.Discrete(2)

    def reset(self, key: Key[Array, ""]) -> tuple[GoalProbeState, Obs]:
        """A new line."""
        line = jax.random.uniform(key, (), minval=-1.0, maxval=1.0)
        state = GoalProbeState(line, jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, _seen(state)

    def step(self, state: GoalProbeState, action: Array, key: Key[Array, ""]) -> Any:
        """Walk."""
        right = action[0] > 0.0 if self.continuous else action == 1
        place = state.place + jnp.where(right, 1.0, -1.0)
        state = GoalProbeState(state.line, place, state.time + 1)
        obs = _seen(state)
        reward, discount = self.judge(obs[ACHIEVED], obs[DESIRED])
        return state, obs, reward, discount == 0.0, state.time >= CUT_AFTER

    def judge(
        self, achieved: Float[Array, "2"], desired: Float[Array, "2"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """1, and the end, where the very place is reached."""
        there = jnp.all(achieved == desired).astype(jnp.float32)
        return there, 1.0 - there

    def asked(self, gamma: float) -> Asked:
        """What an algorithm with discount ``gamma`` must find: from the middle, places to both
        sides, one or two steps away; and those two steps away from half of the way."""
        ways = [(0.0, 1.0), (0.0, -1.0), (0.0, 2.0), (0.0, -2.0), (1.0, 2.0), (-1.0, -2.0)]
        lines = np.repeat(np.array([-0.6, 0.0, 0.6], np.float32), len(ways))
        place, wanted = np.tile(np.array(ways, np.float32).T, 3)
        here, there = np.stack([lines, place], 1), np.stack([lines, wanted], 1)
        steps = np.abs(wanted - place)
        obs = {OBSERVATION: here, ACHIEVED: here, DESIRED: there}
        return Asked(obs, (gamma ** (steps - 1.0)).astype(np.float32), wanted > place)


def _seen(state: GoalProbeState) -> dict[str, Float[Array, "2"]]:
    here = jnp.stack([state.line, state.place])
    wanted = jnp.stack([state.line + APART, jnp.zeros(())])
    return {OBSERVATION: here, ACHIEVED: here, DESIRED: wanted}


def goal_probe(name: str) -> GoalProbe:
    """The probe world called ``name``, one of ``NAMES``."""
    return GoalProbe(name.endswith("-continuous"))
