"""Trials: several episodes in one, so that who remembers can do better in the later ones.

A :class:`Trials` of a task is a task: one episode of it is ``episodes`` of the inner one, in one
level (Duan 2016, "RL^2", arXiv:1611.02779, section 2.2). A memory begins anew where the trial
begins and not in between. The observation shows, beside the inner one, the reward of the step
before and whether an inner episode has just ended with it; the next one has begun then, and its
first observation is what is seen. The trial ends with its last episode, however that ended.

Names: ``N:NAME``, so many episodes of a native world, for instance ``3:maze:4x4``.
"""

from __future__ import annotations

import re
from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import keys
from sterling.channels import Channel
from sterling.envs import registry
from sterling.envs.levels import Levelled
from sterling.envs.traced import Task, select
from sterling.types import Action, Mistake, Obs

NAMES = ("3:maze:4x4", "3:tabular:chain-8")
FORM = re.compile(r"(\d+):(.+)")
NATIVE = registry.NATIVE - {"trials"}
SHOWN = ("reward", "ended")  # what is seen beside the inner observation


class TrialState(eqx.Module):
    """The inner task's state and level, its clock, and how many of its episodes are over."""

    task: PyTree
    level: PyTree
    elapsed: Int[Array, ""]
    over: Int[Array, ""]


class Trials:
    """``episodes`` of ``task`` in one level as one episode, a :class:`sterling.envs.traced.Task`.

    ``limit`` cuts an inner episode after so many steps (0: never). A task without levels begins
    each of them as it always does.
    """

    def __init__(self, task: Task, episodes: int, limit: int = 0):
        if getattr(task, "agents", None):
            raise Mistake("trials are of worlds of one agent; name another world")
        self.task, self.episodes, self.limit = task, episodes, limit
        self.action, self.levels = task.action, getattr(task, "levels", 0)
        self.channels: dict[str, Channel] = dict(getattr(task, "channels", {}))
        inner = task.obs.spaces if isinstance(task.obs, spaces.Dict) else {"obs": task.obs}
        if taken := set(SHOWN) & set(inner):
            raise Mistake(f"a trial shows {taken.pop()!r} and so does its task; name it otherwise")
        shown = {"reward": spaces.Box(-np.inf, np.inf, (1,), np.float32),
                 "ended": spaces.Box(0.0, 1.0, (1,), np.float32)}  # fmt: skip
        self.obs = spaces.Dict({**inner, **shown})
        self.unseen: tuple[str, ...] = tuple(getattr(task, "unseen", ()))

    @property
    def edit(self) -> Any:
        """The inner task's ``edit(level, key)``, where it has one."""
        return cast(Any, self.task).edit

    def level(self, key: Key[Array, ""]) -> PyTree:
        """A level of the inner task; of one without levels nothing."""
        return self.task.level(key) if isinstance(self.task, Levelled) else ()

    def begin(self, level: PyTree, key: Key[Array, ""]) -> tuple[TrialState, Obs]:
        """Start a trial."""
        task, obs = self._begin(level, key)
        none = jnp.zeros((), jnp.int32)
        return TrialState(task, level, none, none), self._seen(obs, jnp.zeros(()), none > 0)

    def step(self, state: TrialState, action: Action, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Move, and begin the next inner episode where one is over."""
        moved, obs, reward, terminated, truncated, *more = self.task.step(state.task, action, key)
        elapsed = state.elapsed + 1
        over = terminated | truncated
        over = over | (elapsed >= self.limit) if self.limit else over
        again = self._begin(state.level, keys.fold(key, "inner-episode"))
        task, obs = select(over, again, (moved, obs))
        count = state.over + over.astype(jnp.int32)
        after = TrialState(task, state.level, jnp.where(over, 0, elapsed), count)
        never = jnp.zeros((), bool)
        return after, self._seen(obs, reward, over), reward, count >= self.episodes, never, *more

    def _begin(self, level: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Obs]:
        task: Any = self.task
        return task.begin(level, key) if isinstance(task, Levelled) else task.reset(key)

    def _seen(self, obs: Obs, reward: Float[Array, ""], ended: Bool[Array, ""]) -> Obs:
        inner = obs if isinstance(obs, dict) else {"obs": obs}
        shown = {"reward": reward, "ended": ended}
        return {**inner, **{name: jnp.float32(x)[None] for name, x in shown.items()}}


def names() -> list[str]:
    """Some of them: numbers and inner worlds may be others."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is of the form, with a native world that there is."""
    try:
        _parsed(name)
    except Mistake:
        return False
    return True


def make(name: str) -> tuple[Trials, int]:
    """The trials called ``name``, which have no limit but their episodes' own."""
    episodes, task, limit = _parsed(name)
    return Trials(task, episodes, limit), 0


def _parsed(name: str) -> tuple[int, Task, int]:
    """The number of episodes, the inner task and its time limit."""
    found = FORM.fullmatch(name)
    if not found or not int(found[1]):
        raise Mistake(f"trials {name!r} are not known; write for instance 3:maze:4x4")
    backend, rest = registry.find(found[2])
    if backend not in NATIVE:
        raise Mistake(f"trials are of native worlds, {found[2]} is one of {backend}")
    return int(found[1]), *registry.native(backend, rest)
