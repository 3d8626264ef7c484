"""How a Gymnasium environment with goals judges them: by its own ``compute_reward``.

The environments that are stepped live in worker processes; one more is built here, when the first
goal is to be judged, and the compiled program calls it back. That is as slow as Python is, and
whoever wants speed writes the rule in JAX, as a Task's ``judge``.
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

from sterling import importing
from sterling.goals import ACHIEVED, has_goals
from sterling.types import Mistake, Spec


def judged(spec: Spec, build: Callable[[], Any], name: str, *, vectors: bool) -> Spec:
    """What is known of an environment, with its judge where it has goals; ``vectors`` says that its
    rewards are such, of which the learner sees a sum that ``compute_reward`` does not give."""
    if vectors or not has_goals(spec.obs):
        return spec
    return dataclasses.replace(spec, judge=HostJudge(build, name, spec.obs))


class HostJudge:
    """Asks ``compute_reward(achieved, desired, {})`` of an environment that ``build`` builds, with
    all rows at once, and where it has one ``compute_terminated`` likewise; without that nothing
    ends an episode."""

    def __init__(self, build: Callable[[], Any], name: str, obs: spaces.Space[Any]):
        own: Any = obs
        self._shape: tuple[int, ...] = own[ACHIEVED].shape
        self._build, self._name = build, name
        self._made: Any = None

    def __call__(
        self, achieved: Float[Array, "..."], desired: Float[Array, "..."]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Reward and discount."""
        self._ready()
        number = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(
            self._answer, (number, number), achieved, desired, vmap_method="broadcast_all"
        )

    def _ready(self) -> None:
        """Build the environment, once, and see that it judges several goals at once."""
        if self._made is not None:
            return
        try:
            self._made = self._build().unwrapped
        except Exception as error:
            raise Mistake(f"{self._name} raises {importing.explain(error)}") from error
        if not hasattr(self._made, "compute_reward"):
            raise Mistake(
                f"{self._name} has goals and no compute_reward(achieved_goal, desired_goal, info) "
                "to judge others by; give it one, or leave out hindsight"
            )
        goals = np.zeros((2, *self._shape), np.float32)
        try:
            self._answer(goals, goals)
        except Exception as error:
            said = importing.explain(error)
            raise Mistake(f"{self._name}: goals cannot be judged: {said}; {REMEDY}") from error

    def _answer(self, achieved: Any, desired: Any) -> tuple[np.ndarray, np.ndarray]:
        """Of goals with any leading axes, laid out in one."""
        lead = achieved.shape[: achieved.ndim - len(self._shape)]
        rows = [np.asarray(x).reshape(-1, *x.shape[len(lead) :]) for x in (achieved, desired)]
        reward = np.asarray(self._made.compute_reward(*rows, {}), np.float32)
        if reward.shape != (len(rows[0]),):
            raise ValueError(f"{len(rows[0])} rows are answered with shape {reward.shape}")
        over: Any = np.zeros(len(rows[0]), bool)
        if hasattr(self._made, "compute_terminated"):
            over = np.asarray(self._made.compute_terminated(*rows, {}), bool)
        going = np.where(over, np.float32(0.0), np.float32(1.0))
        return reward.reshape(lead), going.reshape(lead)


REMEDY = "compute_reward is asked with an axis of rows before a goal's own, and an empty info"
