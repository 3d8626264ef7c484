"""The time limit of an environment that is not compiled here, as far as it says so."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import gymnasium
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit

NONE = 2**31 - 1  # EnvPool's number of steps for no limit


def time_limit(env: Any) -> int | None:
    """Return the steps after which a Gymnasium environment truncates an episode: the smallest of
    its ``TimeLimit`` wrappers and of its own ``spec``; None if it says nothing."""
    said = (positive_limit(each) for each in _said_limits(env))
    return min((each for each in said if each is not None), default=None)


def vector_time_limit(env: VectorEnv) -> int | None:
    """Return the same of a vector environment. Those of :class:`gymnasium.vector.AsyncVectorEnv`
    live in other processes: of them only its ``spec`` is known."""
    inner = env.unwrapped
    if isinstance(inner, SyncVectorEnv):
        return time_limit(inner.envs[0])
    usual = getattr(inner.spec, "max_episode_steps", None)
    given = getattr(inner.spec, "kwargs", {})  # what ``make_vec`` was told
    return positive_limit(given.get("max_episode_steps", usual))


def positive_limit(said: Any) -> int | None:
    """Return a stated number of steps, or None if it stands for no limit: None, 0, -1, the largest
    int32."""
    steps = int(said) if isinstance(said, Integral) and not isinstance(said, bool) else 0
    return steps if 0 < steps < NONE else None


def _said_limits(env: Any) -> Iterator[Any]:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            yield env._max_episode_steps
        env = env.env
    yield getattr(getattr(env, "spec", None), "max_episode_steps", None)
