"""Native environments for everybody else: a pure task as an ordinary ``gymnasium.Env``."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np

from sterling.agents import REWARD
from sterling.envs.levels import resetting
from sterling.envs.traced import Task


class Exported(gymnasium.Env[Any, Any]):
    """One copy of a :class:`sterling.envs.traced.Task`, stepped from Python."""

    render_mode = None

    def __init__(self, task: Task):
        self.metadata = {"render_modes": []}
        self.observation_space, self.action_space = task.obs, task.action
        self._reset, self._step = jax.jit(resetting(task)), jax.jit(task.step)
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._state, obs = self._reset(self._key())
        return self._host(obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move."""
        action = np.asarray(action, self.action_space.dtype)
        action = action.astype(jax.dtypes.canonicalize_dtype(action.dtype))
        self._state, obs, reward, terminated, truncated, *more = self._step(
            self._state, action, self._key()
        )
        info = {name: np.asarray(x) for name, x in more[0].items()} if more else {}
        if np.ndim(reward):  # of several agents, each one's own
            info[REWARD] = np.asarray(reward)
        return self._host(obs), float(np.sum(reward)), bool(terminated), bool(truncated), info

    def _key(self) -> Any:
        return jax.random.key(int(self.np_random.integers(2**31)))

    def _host(self, obs: Any) -> Any:
        """NumPy, in the space's dtype."""
        if isinstance(self.observation_space, gymnasium.spaces.Discrete):
            return np.int64(obs)
        return jax.tree.map(np.asarray, obs)


def as_gymnasium(task: Task) -> gymnasium.Env[Any, Any]:
    """``task`` for any tool that takes a Gymnasium environment."""
    return Exported(task)
