"""Native tasks for other tools: a pure task as an ordinary ``gymnasium.Env``."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np

from sterling.envs.levels import make_reset
from sterling.envs.traced_world import Task
from sterling.problem.agent_axis import REWARD


class TaskEnv(gymnasium.Env[Any, Any]):
    """One copy of a :class:`sterling.envs.traced_world.Task` as a Gymnasium environment, stepped
    from Python."""

    render_mode = None

    def __init__(self, task: Task):
        self.metadata = {"render_modes": []}
        self.observation_space, self.action_space = task.obs, task.action
        self._reset, self._step = jax.jit(make_reset(task)), jax.jit(task.step)
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._state, obs = self._reset(self._key())
        return self._to_numpy(obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the task."""
        action = np.asarray(action, self.action_space.dtype)
        action = action.astype(jax.dtypes.canonicalize_dtype(action.dtype))
        self._state, obs, reward, terminated, truncated, *channels = self._step(
            self._state, action, self._key()
        )
        info = {name: np.asarray(x) for name, x in channels[0].items()} if channels else {}
        if np.ndim(reward):  # one reward per agent
            info[REWARD] = np.asarray(reward)
        return self._to_numpy(obs), float(np.sum(reward)), bool(terminated), bool(truncated), info

    def _key(self) -> Any:
        return jax.random.key(int(self.np_random.integers(2**31)))

    def _to_numpy(self, obs: Any) -> Any:
        """Convert an observation to NumPy, in the space's dtype."""
        if isinstance(self.observation_space, gymnasium.spaces.Discrete):
            return np.int64(obs)
        return jax.tree.map(np.asarray, obs)


def as_gymnasium(task: Task) -> gymnasium.Env[Any, Any]:
    """Return ``task`` as a Gymnasium environment, for any tool that takes one."""
    return TaskEnv(task)
