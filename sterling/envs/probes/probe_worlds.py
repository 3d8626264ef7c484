"""Probe tasks: problems so small that the right answer is known (after Andy Jones 2021, "Debugging
RL, without the agonizing pain").

Each isolates one thing that an algorithm must get right, so the first one that fails says what is
broken. Unless they are truncated, episodes last one or two steps.

  constant      always 1                                   the value of one constant reward
  observation   the observation, -1 or 1                   values that depend on observations
  delay         0, then 1                                  discounting over one step
  action        depends on the action                      policies that prefer the better action
  both          depends on action and observation          policies that use observations
  cut           1 for ever, truncated every few steps      truncation bootstraps: V = 1/(1 - gamma)
  limits        one state truncates, the other ends        ends separated from truncations
  memory        the first observation says what is right   policies that remember
  paid          pays the first observation, truncated      memory that is kept at a truncation
  constraint    what is worth its cost under a limit       multipliers that find their value

In memory and paid only an episode's first observation is informative, -1 or 1; the others are 0.
Every task exists with two discrete actions and, as ``...-continuous``, with one action in [-1, 1],
whose reward is 1 - (action - target)^2. Each but the last also exists as ``...-costly``, which
reports a channel ``cost``, 1 a step, and as ``...-team``, with three agents (``team_probe.py``).
Other probes have files of their own: goals ``goal_probe.py``, levels ``level_probe.py``, two
objectives ``objectives_probe.py``, two sides that move in turn ``turn_probe.py``, entries that only
critics get ``unseen_probe.py``, agents that leave in several ways (parting-team) ``team_probe.py``.

In constraint, which lasts one step, action 1 pays 1 and costs u, action 0 neither. The observation
is 2 u - 1 with u uniform in [0, 1]: the best policy under a limit d takes what costs less than
sqrt(2 d). Its continuous action a stands for p = (a + 1) / 2, which pays p and costs p^2, and the
observation is 0: the best is p = sqrt(d). In both forms exactly one value of the multiplier brings
the cost to the limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key, Num

from sterling.envs.probes import goal_probe, level_probe, objectives_probe, turn_probe, unseen_probe
from sterling.envs.probes.team_probe import PARTING, PartingTeam, ProbeTeam
from sterling.problem.channels import Channel

CUT_AFTER = 4  # steps: if truncation counts as an end, values are <= 4, far from 1/(1 - gamma)
CONTINUOUS_TARGET = 0.5  # the best continuous action (times the observation in ``both``)


@dataclasses.dataclass(frozen=True)
class Solution:
    """The optimal value of every observation, and the best action if actions matter."""

    obs: Float[np.ndarray, "row 1"]
    value: Float[np.ndarray, "row"]
    action: Num[np.ndarray, "row ..."] | None  # int (row,), or float (row, 1); None: any


class ProbeState(eqx.Module):
    """The current observation, the number of steps done, and the first observation."""

    seen: Float[Array, "1"]
    time: Int[Array, ""]
    first: Float[Array, "1"]  # the first observation


@dataclasses.dataclass(frozen=True)
class Probe:
    """One probe, as a :class:`sterling.envs.traced_world.Task`."""

    kind: str  # a key of ``KINDS``
    continuous: bool = False
    costly: bool = False

    @property
    def channels(self) -> dict[str, Channel]:
        """The channels reported beside the reward."""
        return {"cost": Channel(better=-1)} if self.costly or self.kind == CONSTRAINT else {}

    @property
    def obs(self) -> spaces.Box:
        """One number in [-1, 1]."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    @property
    def action(self) -> spaces.Space[Any]:
        """Two choices, or one number in [-1, 1]."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if self.continuous else spaces.Discrete(2)

    def reset(self, key: Key[Array, ""]) -> tuple[ProbeState, Float[Array, "1"]]:
        """Start with the observation 0, or with a random -1 or 1 if observations matter."""
        seen = jnp.zeros(1)
        if self.kind in ("observation", "both", "limits", *MEMORY_KINDS):
            seen = 2.0 * jax.random.bernoulli(key, shape=(1,)).astype(jnp.float32) - 1.0
        if self.kind == CONSTRAINT and not self.continuous:
            seen = jax.random.uniform(key, (1,), minval=-1.0)
        return ProbeState(seen, jnp.zeros((), jnp.int32), seen), seen

    def step(self, state: ProbeState, action: Array, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Step the task."""
        seen, time = state.seen, state.time + 1
        reward = self._reward(state, action)
        terminated, truncated = self._ended(seen, time)
        if self.kind == "delay":
            seen = jnp.ones(1)
        if self.kind in MEMORY_KINDS:
            seen = jnp.zeros(1)
        moved = ProbeState(seen, time, state.first)
        reported = ({"cost": self._cost(state, action)},) if self.channels else ()
        return moved, seen, reward, terminated, truncated, *reported

    def solution(self, gamma: float) -> Solution:
        """Return what an algorithm with discount ``gamma`` per step must find, if one observation
        suffices; see :meth:`memory_values` for the tasks that need memory."""
        forever = 1.0 / (1.0 - gamma)
        values = {
            "constant": {0.0: 1.0},
            "observation": {-1.0: -1.0, 1.0: 1.0},
            "delay": {0.0: gamma, 1.0: 1.0},
            "action": {0.0: 1.0},
            "both": {-1.0: 1.0, 1.0: 1.0},
            "cut": {0.0: forever},
            "limits": {-1.0: forever, 1.0: 1.0},
        }[self.kind]
        obs = np.array(list(values), np.float32)[:, None]
        value = np.array(list(values.values()), np.float32)
        return Solution(obs, value, self._best(obs))

    def memory_values(self, gamma: float) -> Float[np.ndarray, "time"]:
        """Return the optimal value at every step of an episode of ``memory`` or ``paid`` whose
        first observation is 1.

        If it is -1, the values are the same in ``memory`` and negated in ``paid``.
        """
        if self.kind == "memory":
            return np.array([gamma, 1.0], np.float32)
        return np.full(CUT_AFTER + 1, 1.0 / (1.0 - gamma), np.float32)  # and of the last successor

    def best_return(self, limit: float) -> float:
        """Return the highest mean return in ``constraint`` at a mean cost of at most ``limit``."""
        share = limit if self.continuous else 2.0 * limit
        return min(share**0.5, 1.0)

    def _best(self, obs: Float[np.ndarray, "row 1"]) -> Num[np.ndarray, "row ..."] | None:
        if self.kind not in ("action", "both"):
            return None
        sides = obs if self.kind == "both" else np.ones_like(obs)
        return CONTINUOUS_TARGET * sides if self.continuous else (sides[:, 0] > 0).astype(np.int32)

    def _cost(self, state: ProbeState, action: Array) -> Float[Array, ""]:
        if self.kind != CONSTRAINT:
            return jnp.ones(())
        paid = self._reward(state, action)
        return jnp.square(paid) if self.continuous else paid * 0.5 * (state.seen[0] + 1.0)

    def _reward(self, state: ProbeState, action: Array) -> Float[Array, ""]:
        if self.kind == CONSTRAINT:
            return 0.5 * (action[0] + 1.0) if self.continuous else (action == 1).astype(jnp.float32)
        if self.kind == "delay":
            return state.time.astype(jnp.float32)
        if self.kind in ("observation", "paid"):
            return state.first[0]
        if self.kind not in ("action", "both", "memory"):
            return jnp.ones(())
        side = jnp.ones(()) if self.kind == "action" else state.first[0]
        if self.kind == "memory":
            side = jnp.where(state.time == 1, side, 0.0)
        if self.continuous:
            right = 1.0 - jnp.square(action[0] - CONTINUOUS_TARGET * side)
            return jnp.where((self.kind == "memory") & (state.time == 0), 0.0, right)
        return side * jnp.where(action == 1, 1.0, -1.0)

    def _ended(self, seen: Float[Array, "1"], time: Int[Array, ""]) -> tuple[Array, Array]:
        """Return whether the episode is terminated, and whether it is truncated."""
        never, limit_reached = jnp.zeros((), bool), time >= CUT_AFTER
        if self.kind in ("cut", "paid"):
            return never, limit_reached
        if self.kind == "limits":
            return seen[0] > 0.0, limit_reached
        return time >= (2 if self.kind in ("delay", "memory") else 1), never


MEMORY_KINDS = ("memory", "paid")
KINDS = ("constant", "observation", "delay", "action", "both", "cut", "limits", *MEMORY_KINDS)
NAME_SUFFIXES = ("", "-continuous", "-costly", "-continuous-costly")
CONSTRAINT = "constraint"
NAMES = (
    *(kind + form for kind in KINDS for form in NAME_SUFFIXES),
    CONSTRAINT,
    f"{CONSTRAINT}-continuous",
)
TEAM_NAMES = tuple(kind + form for kind in KINDS for form in ("-team", "-continuous-team"))


OTHER_PROBES: dict[str, Callable[[str], Any]] = {  # the probes of other files -> what makes each
    **dict.fromkeys(goal_probe.NAMES, goal_probe.make_goal_probe),
    **dict.fromkeys(level_probe.NAMES, level_probe.make_level_probe),
    **dict.fromkeys(objectives_probe.NAMES, objectives_probe.make_objectives_probe),
    **dict.fromkeys(turn_probe.NAMES, turn_probe.make_turn_probe),
    PARTING: lambda name: PartingTeam(),
    **dict.fromkeys(unseen_probe.NAMES, unseen_probe.make_hidden_probe),
}


def names() -> list[str]:
    """Return all names."""
    return [*NAMES, *TEAM_NAMES, *OTHER_PROBES]


def knows(name: str) -> bool:
    """Whether there is a probe called ``name``."""
    return name in names()


def make(name: str) -> tuple[Any, int]:
    """Return the probe called ``name``, and 0: it has no time limit but its own."""
    return OTHER_PROBES.get(name, make_probe)(name), 0


def make_probe(name: str) -> Any:
    """Return the probe called ``name``, one of ``NAMES`` or ``TEAM_NAMES``: a :class:`Probe`, or a
    team of them (:class:`sterling.envs.probes.team_probe.ProbeTeam`)."""
    kind, *forms = name.split("-")
    one = Probe(kind, "continuous" in forms, "costly" in forms)
    return ProbeTeam(one) if "team" in forms else one
