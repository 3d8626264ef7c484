"""Probe worlds: problems so small that the right answer is known (after Andy Jones 2021,
"Debugging RL, without the agonizing pain"). Each isolates one thing an algorithm must get right,
so the first that fails says what is broken. All but those with cuts last one or two steps.

    constant      always 1                                   the value of anything at all
    observation   the observation, -1 or 1                   values that depend on observations
    delay         0, then 1                                  discounting over one step
    action        depends on the action                      policies at all
    both          depends on action and observation          policies that look
    cut           1 for ever, cut every few steps            a cut bootstraps: V = 1 / (1 - gamma)
    limits        two rooms: one is cut, in one life ends    ends and cuts told apart
    memory        what was seen first decides what is right  policies that remember
    paid          what was seen first for ever, cut          the memory that led to a cut is kept
    constraint    what is worth its cost under a limit       multipliers that find their value

In memory and paid only an episode's first observation says something, -1 or 1; the others are 0.
Every world exists with two discrete actions and, named ``...-continuous``, with one action in
[-1, 1], whose reward is 1 - (action - target)^2. Each but the last, named ``...-costly``, also
reports a channel ``cost``, 1 a step; named ``...-team``, it is one of three agents
(``probe_team.py``). Others stand in files of their own: of goals ``goal_probe.py``, of levels
``level_probe.py``, of two objectives ``objectives_probe.py``, of two sides that move in turn
``turn_probe.py``, of what only critics see ``unseen_probe.py``.

In constraint, of one step, action 1 pays 1 and costs u, action 0 nothing, and what is seen is
2 u - 1 with u drawn from [0, 1]: the best under a limit d takes what costs less than sqrt(2 d). Its
continuous action a stands for p = (a + 1) / 2, which pays p and costs p^2, and nothing is seen: the
best is p = sqrt(d). Both multipliers have one value at which costs are the limit.
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

from sterling.channels import Channel
from sterling.envs import goal_probe, level_probe, objectives_probe, turn_probe, unseen_probe
from sterling.envs.probe_team import ProbeTeam

CUT_AFTER = 4  # steps: a cut taken for an end is worth at most 4 rewards, far from 1 / (1 - gamma)
CONTINUOUS_TARGET = 0.5  # the best continuous action, times the observation where it matters


@dataclasses.dataclass(frozen=True)
class Solution:
    """The optimal value of every observation, and the best action where actions matter."""

    obs: Float[np.ndarray, "row 1"]
    value: Float[np.ndarray, "row"]
    action: Num[np.ndarray, "row ..."] | None  # int (row,), or float (row, 1); None: any


class ProbeState(eqx.Module):
    """What is seen, and how many steps of the episode are done."""

    seen: Float[Array, "1"]
    time: Int[Array, ""]
    first: Float[Array, "1"]  # what was seen first


@dataclasses.dataclass(frozen=True)
class Probe:
    """One probe world, a :class:`sterling.envs.traced.Task`."""

    kind: str  # a key of ``KINDS``
    continuous: bool = False
    costly: bool = False

    @property
    def channels(self) -> dict[str, Channel]:
        """What is reported beside the reward."""
        return {"cost": Channel(better=-1)} if self.costly or self.kind == LIMITED else {}

    @property
    def obs(self) -> spaces.Box:
        """One number in [-1, 1]."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    @property
    def action(self) -> spaces.Space[Any]:
        """Two choices, or one number in [-1, 1]."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if self.continuous else spaces.Discrete(2)

    def reset(self, key: Key[Array, ""]) -> tuple[ProbeState, Float[Array, "1"]]:
        """Start: the observation is 0, or -1 or 1 by chance where observations matter."""
        seen = jnp.zeros(1)
        if self.kind in ("observation", "both", "limits", *REMEMBERED):
            seen = 2.0 * jax.random.bernoulli(key, shape=(1,)).astype(jnp.float32) - 1.0
        if self.kind == LIMITED and not self.continuous:
            seen = jax.random.uniform(key, (1,), minval=-1.0)
        return ProbeState(seen, jnp.zeros((), jnp.int32), seen), seen

    def step(self, state: ProbeState, action: Array, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Move."""
        seen, time = state.seen, state.time + 1
        reward = self._reward(state, action)
        terminated, truncated = self._over(seen, time)
        if self.kind == "delay":
            seen = jnp.ones(1)
        if self.kind in REMEMBERED:
            seen = jnp.zeros(1)
        moved = ProbeState(seen, time, state.first)
        reported = ({"cost": self._cost(state, action)},) if self.channels else ()
        return moved, seen, reward, terminated, truncated, *reported

    def solution(self, gamma: float) -> Solution:
        """What an algorithm with discount ``gamma`` per step must find, where an observation says
        all; see :meth:`remembered` for the others."""
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

    def remembered(self, gamma: float) -> Float[np.ndarray, "time"]:
        """The optimal value at every step of an episode of a world that asks for memory, where 1
        was seen first; with -1 it is the same in ``memory`` and its negative in ``paid``."""
        if self.kind == "memory":
            return np.array([gamma, 1.0], np.float32)
        return np.full(CUT_AFTER + 1, 1.0 / (1.0 - gamma), np.float32)  # of a cut's successor too

    def within(self, limit: float) -> float:
        """Of ``constraint``: the largest mean return at a mean cost of at most ``limit``."""
        share = limit if self.continuous else 2.0 * limit
        return min(share**0.5, 1.0)

    def _best(self, obs: Float[np.ndarray, "row 1"]) -> Num[np.ndarray, "row ..."] | None:
        if self.kind not in ("action", "both"):
            return None
        looks = obs if self.kind == "both" else np.ones_like(obs)
        return CONTINUOUS_TARGET * looks if self.continuous else (looks[:, 0] > 0).astype(np.int32)

    def _cost(self, state: ProbeState, action: Array) -> Float[Array, ""]:
        if self.kind != LIMITED:
            return jnp.ones(())
        paid = self._reward(state, action)
        return jnp.square(paid) if self.continuous else paid * 0.5 * (state.seen[0] + 1.0)

    def _reward(self, state: ProbeState, action: Array) -> Float[Array, ""]:
        if self.kind == LIMITED:
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

    def _over(self, seen: Float[Array, "1"], time: Int[Array, ""]) -> tuple[Array, Array]:
        """Ended, cut."""
        never, tired = jnp.zeros((), bool), time >= CUT_AFTER
        if self.kind in ("cut", "paid"):
            return never, tired
        if self.kind == "limits":
            return seen[0] > 0.0, tired
        return time >= (2 if self.kind in ("delay", "memory") else 1), never


REMEMBERED = ("memory", "paid")
KINDS = ("constant", "observation", "delay", "action", "both", "cut", "limits", *REMEMBERED)
FORMS = ("", "-continuous", "-costly", "-continuous-costly")
LIMITED = "constraint"
NAMES = (*(kind + form for kind in KINDS for form in FORMS), LIMITED, f"{LIMITED}-continuous")
TEAMS = tuple(kind + form for kind in KINDS for form in ("-team", "-continuous-team"))


ELSEWHERE: dict[str, Callable[[str], Any]] = {  # those of other files, and what makes each
    **dict.fromkeys(goal_probe.NAMES, goal_probe.goal_probe),
    **dict.fromkeys(level_probe.NAMES, level_probe.level_probe),
    **dict.fromkeys(objectives_probe.NAMES, objectives_probe.objectives_probe),
    **dict.fromkeys(turn_probe.NAMES, turn_probe.turn_probe),
    **dict.fromkeys(unseen_probe.NAMES, unseen_probe.hidden),
}


def names() -> list[str]:
    """All that there are."""
    return [*NAMES, *TEAMS, *ELSEWHERE]


def knows(name: str) -> bool:
    """Whether there is a probe world of that name."""
    return name in names()


def make(name: str) -> tuple[Any, int]:
    """The probe world called ``name``, which has no limit but its own."""
    return ELSEWHERE.get(name, probe)(name), 0


def probe(name: str) -> Any:
    """The probe world called ``name``, one of ``NAMES`` or ``TEAMS``: a :class:`Probe`, or a
    :class:`sterling.envs.probe_team.ProbeTeam` of them."""
    kind, *forms = name.split("-")
    one = Probe(kind, "continuous" in forms, "costly" in forms)
    return ProbeTeam(one) if "team" in forms else one
