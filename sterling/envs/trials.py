"""Trials: several episodes as one, so that an agent with memory can do better in the later ones.

A :class:`Trials` of a task is a task itself: one episode of it, a trial, is ``episodes`` episodes
of the inner task, in one level (Duan 2016, "RL^2", arXiv:1611.02779, section 2.2). An agent's
memory is reset where a trial begins, and kept between its inner episodes. Beside the inner
observation, the observation has the reward of the last step and whether an inner episode ended with
it; in that case the next one has already begun, and its first observation is observed. The trial
ends with its last inner episode, terminated or truncated.

Names: ``N:NAME``, N episodes of a native world, for instance ``3:maze:4x4``.
"""

from __future__ import annotations

import re
from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import random_keys
from sterling.envs import registry
from sterling.envs.levels import TaskWithLevels
from sterling.envs.traced_world import Task, tree_where
from sterling.problem.channels import Channel
from sterling.problem.episode_summaries import Summary
from sterling.types import Action, Mistake, Obs

NAMES = ("3:maze:4x4", "3:tabular:chain-8")
NAME_PATTERN = re.compile(r"(\d+):(.+)")
INNER_BACKENDS = registry.NATIVE_BACKENDS - {"trials"}
EXTRA_ENTRIES = ("reward", "ended")  # entries observed beside the inner observation


class TrialState(eqx.Module):
    """The inner task's state and level, the steps of its episode, and how many of its episodes are
    over."""

    task: PyTree
    level: PyTree
    elapsed: Int[Array, ""]
    over: Int[Array, ""]


class Trials:
    """``episodes`` episodes of ``task`` in one level as one episode, as a
    :class:`sterling.envs.traced_world.Task`.

    ``limit`` truncates an inner episode after that many steps (0: never). A task without levels
    begins each episode as usual.
    """

    def __init__(self, task: Task, episodes: int, limit: int = 0):
        if getattr(task, "agents", None):
            raise Mistake("Trials need a task of one agent. Name another environment.")
        self.task, self.episodes, self.limit = task, episodes, limit
        self.action, self.levels = task.action, getattr(task, "levels", 0)
        self.channels: dict[str, Channel] = dict(getattr(task, "channels", {}))
        self.summaries: dict[str, Summary] = dict(getattr(task, "summaries", {}))
        inner = task.obs.spaces if isinstance(task.obs, spaces.Dict) else {"obs": task.obs}
        if taken := set(EXTRA_ENTRIES) & set(inner):
            raise Mistake(
                f"The task already observes {taken.pop()!r}, which a trial adds. Rename that entry."
            )
        shown = {"reward": spaces.Box(-np.inf, np.inf, (1,), np.float32),
                 "ended": spaces.Box(0.0, 1.0, (1,), np.float32)}  # fmt: skip
        self.obs = spaces.Dict({**inner, **shown})
        self.unseen: tuple[str, ...] = tuple(getattr(task, "unseen", ()))

    @property
    def edit(self) -> Any:
        """The inner task's ``edit(level, key)``, if it has one."""
        return cast(Any, self.task).edit

    def level(self, key: Key[Array, ""]) -> PyTree:
        """Draw a level of the inner task; an empty tuple if it has no levels."""
        return self.task.level(key) if isinstance(self.task, TaskWithLevels) else ()

    def begin(self, level: PyTree, key: Key[Array, ""]) -> tuple[TrialState, Obs]:
        """Start a trial."""
        task, obs = self._begin(level, key)
        zero = jnp.zeros((), jnp.int32)
        return TrialState(task, level, zero, zero), self._observe(obs, jnp.zeros(()), zero > 0)

    def step(self, state: TrialState, action: Action, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Step the inner task, and begin its next episode if one is over."""
        moved, obs, reward, terminated, truncated, *more = self.task.step(state.task, action, key)
        elapsed = state.elapsed + 1
        over = terminated | truncated
        over = over | (elapsed >= self.limit) if self.limit else over
        restarted = self._begin(state.level, random_keys.fold(key, "inner-episode"))
        task, obs = tree_where(over, restarted, (moved, obs))
        count = state.over + over.astype(jnp.int32)
        after = TrialState(task, state.level, jnp.where(over, 0, elapsed), count)
        never = jnp.zeros((), bool)
        return after, self._observe(obs, reward, over), reward, count >= self.episodes, never, *more

    def _begin(self, level: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Obs]:
        task: Any = self.task
        return task.begin(level, key) if isinstance(task, TaskWithLevels) else task.reset(key)

    def _observe(self, obs: Obs, reward: Float[Array, ""], ended: Bool[Array, ""]) -> Obs:
        inner = obs if isinstance(obs, dict) else {"obs": obs}
        shown = {"reward": reward, "ended": ended}
        return {**inner, **{name: jnp.float32(x)[None] for name, x in shown.items()}}


def names() -> list[str]:
    """Return example names; other numbers and inner worlds work too."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is ``N:NAME`` with the name of a native world."""
    try:
        _parse_name(name)
    except Mistake:
        return False
    return True


def make(name: str) -> tuple[Trials, int]:
    """Return the trials called ``name``, and 0: they have no time limit but the inner episodes'."""
    episodes, task, limit = _parse_name(name)
    return Trials(task, episodes, limit), 0


def _parse_name(name: str) -> tuple[int, Task, int]:
    """Return the number of episodes, the inner task and its time limit."""
    found = NAME_PATTERN.fullmatch(name)
    if not found or not int(found[1]):
        raise Mistake(f"Unknown trials {name!r}. Write N:NAME, for instance 3:maze:4x4.")
    backend, rest = registry.find_backend(found[2])
    if backend not in INNER_BACKENDS:
        raise Mistake(
            f"Trials need a native environment, and {found[2]} is one of {backend}. Name another."
        )
    return int(found[1]), *registry.make_native_task(backend, rest)
