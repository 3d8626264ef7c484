"""The judge of a Gymnasium environment with goals: its own ``compute_reward``.

The environments that are stepped live in worker processes. One more is built in this process when
the first goal is to be judged, and the compiled program calls it back. That is as slow as Python;
for speed, write the rule in JAX, as a Task's ``judge``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float

from sterling.lookup import user_imports
from sterling.problem.goal_obs import ACHIEVED, has_goals
from sterling.types import Mistake, Spec


def with_host_judge(spec: Spec, build: Callable[[], Any], name: str, *, vectors: bool) -> Spec:
    """Return ``spec`` with a judge if the environment has goals.

    ``vectors`` says that rewards are vectors: the learner gets their weighted sum, which
    ``compute_reward`` does not give, so there is no judge.
    """
    if vectors or not has_goals(spec.obs):
        return spec
    return dataclasses.replace(spec, judge=HostJudge(build, name, spec.obs))


class HostJudge:
    """Judge goals by the ``compute_reward(achieved, desired, {})`` of an environment that ``build``
    builds, all rows in one call.

    If it has ``compute_terminated``, that is called likewise; otherwise no goal ends an episode.
    """

    def __init__(self, build: Callable[[], Any], name: str, obs: spaces.Space[Any]):
        parts: Any = obs
        self._shape: tuple[int, ...] = parts[ACHIEVED].shape
        self._build, self._name = build, name
        self._env: Any = None

    def __call__(
        self, achieved: Float[Array, "..."], desired: Float[Array, "..."]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return reward and discount for an achieved and a desired goal."""
        self._build_once()
        number = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(
            self._judge_rows, (number, number), achieved, desired, vmap_method="broadcast_all"
        )

    def _build_once(self) -> None:
        """Build the environment once, and check that it judges several goals in one call."""
        if self._env is not None:
            return
        try:
            self._env = self._build().unwrapped
        except Exception as error:
            raise Mistake(f"{self._name} raises {user_imports.describe_error(error)}") from error
        if not hasattr(self._env, "compute_reward"):
            raise Mistake(
                f"{self._name} has goals but no compute_reward(achieved_goal, desired_goal, info), "
                "which hindsight needs. Add that method, or leave out hindsight."
            )
        goals = np.zeros((2, *self._shape), np.float32)
        try:
            self._judge_rows(goals, goals)
        except Exception as error:
            said = user_imports.describe_error(error)
            raise Mistake(f"{self._name}: compute_reward fails: {said}. {REMEDY}") from error

    def _judge_rows(self, achieved: Any, desired: Any) -> tuple[np.ndarray, np.ndarray]:
        """Call the environment's methods on goals with any leading axes, flattened to rows."""
        lead = achieved.shape[: achieved.ndim - len(self._shape)]
        rows = [np.asarray(x).reshape(-1, *x.shape[len(lead) :]) for x in (achieved, desired)]
        reward = np.asarray(self._env.compute_reward(*rows, {}), np.float32)
        if reward.shape != (len(rows[0]),):
            raise ValueError(f"it returned shape {reward.shape} for {len(rows[0])} rows")
        ended: Any = np.zeros(len(rows[0]), bool)
        if hasattr(self._env, "compute_terminated"):
            ended = np.asarray(self._env.compute_terminated(*rows, {}), bool)
        discount = np.where(ended, np.float32(0.0), np.float32(1.0))
        return reward.reshape(lead), discount.reshape(lead)


REMEDY = "It is called with goals of shape (rows, ...) and an empty info, and must accept both."
