"""Trials: several episodes as one, so that an agent with memory can do better in the later ones.

A :class:`Trials` of a task is a task itself: one episode of it, a trial, is ``episodes`` episodes
of the inner task, in one level (Duan 2016, "RL^2", arXiv:1611.02779, section 2.2). An agent's
memory is reset where a trial begins, and kept between its inner episodes. The trial ends with its
last inner episode, terminated or truncated.

Where an inner episode ends, the next one has begun within the same step, so its first observation
is observed. Beside the inner observation, in entries of its own, the observation has what the last
step led to:

- ``reward``, the reward of the last step,
- ``ended``, 1 if an inner episode ended with it, ``terminated``, 1 if it was not truncated,
- ``final_NAME`` for every entry NAME (``final_obs`` if the task observes no dict), the inner
  episode's final observation; 0 unless ``ended``.

The successor of a step within its inner episode is therefore ``next_obs["final_obs"]`` where
``next_obs["ended"]`` is 1, and ``next_obs["obs"]`` elsewhere. The channel ``inner_return`` reports
the return of every inner episode: ``inner_return.1`` is that of the first.

Names: ``N:NAME``, N episodes of a native world, for instance ``3:maze:4x4``.
"""

from __future__ import annotations

import re
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import random_keys
from sterling.envs import registry
from sterling.envs.levels import TaskWithLevels
from sterling.envs.traced_world import Task, check_reported, tree_where
from sterling.problem.action_choices import ACTION_MASK
from sterling.problem.channels import Channel
from sterling.problem.episode_summaries import Summary
from sterling.types import Action, Mistake, Obs

NAMES = ("3:maze:4x4", "3:tabular:chain-8")
NAME_PATTERN = re.compile(r"(\d+):(.+)")
INNER_BACKENDS = registry.NATIVE_BACKENDS - {"trials"}
PREFIX = "final_"  # of entries of an inner episode's final observation
RETURN = "inner_return"  # channel


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
    begins each episode as usual. ``final=False`` leaves out the entries ``terminated`` and
    ``final_NAME`` and the channel ``inner_return``, for runs that began without them.
    """

    def __init__(self, task: Task, episodes: int, limit: int = 0, final: bool = True):
        if getattr(task, "agents", None):
            raise Mistake("Trials need a task of one agent. Name another environment.")
        if getattr(task, "alternating", False):
            raise Mistake("Trials need a task of one side, not a game. Name another environment.")
        self.task, self.episodes, self.limit, self.final = task, episodes, limit, final
        self.action, self.levels = task.action, getattr(task, "levels", 0)
        self.level_space = getattr(task, "level_space", None)
        self._inner_channels: dict[str, Channel] = dict(getattr(task, "channels", {}))
        self.summaries: dict[str, Summary] = dict(getattr(task, "summaries", {}))
        self.obs, self.unseen = _observed(task, final)
        if final and RETURN in self._inner_channels:
            raise Mistake(f"The task already reports {RETURN!r}, as a trial does. Rename it.")
        parts = tuple(str(number + 1) for number in range(episodes))
        added = {RETURN: Channel(parts, better=1)} if final else {}
        self.channels = self._inner_channels | added

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
        zero, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        return TrialState(task, level, zero, zero), self._observe(obs, obs, jnp.zeros(()), no, no)

    def step(self, state: TrialState, action: Action, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Step the inner task, and begin its next episode if one is over."""
        moved, final, reward, terminated, truncated, *more = self.task.step(state.task, action, key)
        elapsed = state.elapsed + 1
        over = terminated | truncated
        over = over | (elapsed >= self.limit) if self.limit else over
        restarted = self._begin(state.level, random_keys.fold(key, "inner-episode"))
        task, obs = tree_where(over, restarted, (moved, final))
        count = state.over + over.astype(jnp.int32)
        after = TrialState(task, state.level, jnp.where(over, 0, elapsed), count)
        reported = check_reported(self._inner_channels, *more)
        if self.final:
            number = jnp.arange(self.episodes)
            reported[RETURN] = jnp.where(number == state.over, reward, 0.0)
        obs = self._observe(obs, final, reward, over, terminated)
        made = after, obs, reward, count >= self.episodes, jnp.zeros((), bool)
        return (*made, reported) if self.channels else made

    def _begin(self, level: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Obs]:
        task: Any = self.task
        return task.begin(level, key) if isinstance(task, TaskWithLevels) else task.reset(key)

    def _observe(
        self,
        obs: Obs,
        final: Obs,
        reward: Float[Array, ""],
        ended: Bool[Array, ""],
        terminated: Bool[Array, ""],
    ) -> Obs:
        shown = {"reward": reward, "ended": ended}
        shown |= {"terminated": terminated} if self.final else {}
        made = {**_entries(obs), **{name: jnp.float32(x)[None] for name, x in shown.items()}}
        if self.final:
            zeros = jax.tree.map(jnp.zeros_like, final)
            left = _entries(tree_where(ended, final, zeros))
            made |= {PREFIX + name: x for name, x in left.items() if name != ACTION_MASK}
        return made


def _entries(obs: Any) -> dict[str, Any]:
    """Return the entries of an observation, or of a space; ``obs`` alone if it is no dict."""
    if isinstance(obs, spaces.Dict):
        return dict(obs.spaces)
    return obs if isinstance(obs, dict) else {"obs": obs}


def _observed(task: Task, final: bool) -> tuple[spaces.Dict, tuple[str, ...]]:
    """Return the space of a trial's observations, and the entries that only critics get."""
    flag, number = (
        spaces.Box(low, high, (1,), np.float32) for low, high in ((0.0, 1.0), (-np.inf, np.inf))
    )
    inner, unseen = _entries(task.obs), tuple(getattr(task, "unseen", ()))
    added: dict[str, Any] = {"reward": number, "ended": flag}
    if final:
        left = {name: space for name, space in inner.items() if name != ACTION_MASK}
        added |= {"terminated": flag, **{PREFIX + name: _with_zero(x) for name, x in left.items()}}
        unseen += tuple(PREFIX + name for name in unseen)
    if taken := [name for name in added if name in inner]:
        raise Mistake(
            f"The task already observes {taken[0]!r}, which a trial adds. Rename that entry."
        )
    return spaces.Dict({**inner, **added}), unseen


def _with_zero(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return the space, enlarged where it does not contain 0."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _with_zero(part) for name, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_with_zero(part) for part in space])
    if isinstance(space, spaces.Box):
        low, high = np.minimum(space.low, 0), np.maximum(space.high, 0)
        return spaces.Box(low, high, space.shape, cast(Any, space.dtype))
    if isinstance(space, spaces.Discrete):
        start = min(int(space.start), 0)
        return spaces.Discrete(max(int(space.start + space.n), 1) - start, start=start)
    if isinstance(space, spaces.MultiDiscrete):
        first = np.minimum(space.start, 0)
        return spaces.MultiDiscrete(np.maximum(space.start + space.nvec, 1) - first, start=first)
    return space


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
