"""OGBench's goal worlds as worlds with goals: the goal is observed, and each copy has one task.

OGBench gives the goal in ``info["goal"]``, and judges goal-conditioned policies by its tasks: pairs
of a start and a goal, chosen by ``reset(options={"task_id": k})`` (Park 2025, arXiv:2410.20092).
Workers import this file, so it imports nothing slow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sterling.problem.goal_obs import ACHIEVED, DESIRED, OBSERVATION

GOALS = "goals"  # the option of the environment
TASKS = 5  # of each of OGBench's worlds
SUCCESS = "success"  # entry of its ``info``
CHANNEL = f"{SUCCESS}:max:more:0..1"


def is_goal_world(environment: Any) -> bool:
    """Whether it is the name of one of OGBench's worlds that ask for goals."""
    word = environment if isinstance(environment, str) else ""
    return word.startswith("ogbench:") and "singletask" not in word


def seed_of_copy(seed: int, copy: int) -> int:
    """Return a seed for the copy with this number: one that says which task it has."""
    return seed - seed % TASKS + copy % TASKS


def task_name(number: int) -> str:
    """Return the name of the score of a task, counted from 0."""
    return f"{SUCCESS}.task{number + 1}"


class GoalTasks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observe goals as Gymnasium's goal environments do: what is observed is what is achieved.

    The remainder of the first seed by ``TASKS`` is the task of all episodes. The package draws
    noise from NumPy's global generator; here it is drawn from the seed, and that generator is left
    as it was.
    """

    def __init__(self, env: Any):
        super().__init__(env)
        seen = env.observation_space
        self.observation_space = spaces.Dict(dict.fromkeys((OBSERVATION, ACHIEVED, DESIRED), seen))
        self._chance, self._task = np.random.RandomState(0).get_state(), 0
        self._goal: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of the task."""
        if seed is not None:
            self._task = seed % TASKS
            self._chance = np.random.RandomState(seed % 2**32).get_state()
        task = {"task_id": self._task + 1, **(options or {})}
        obs, info = self._with_own_chance(lambda: self.env.reset(seed=seed, options=task))
        self._goal = np.asarray(info["goal"])
        return self._seen(obs), info

    def step(self, action: Any) -> Any:
        """Step the environment."""
        obs, *rest = self._with_own_chance(lambda: self.env.step(action))
        return (self._seen(obs), *rest)

    def _with_own_chance(self, call: Callable[[], Any]) -> Any:
        before = np.random.get_state()
        np.random.set_state(self._chance)
        try:
            return call()
        finally:
            self._chance = np.random.get_state()
            np.random.set_state(before)

    def _seen(self, obs: Any) -> dict[str, Any]:
        return {OBSERVATION: obs, ACHIEVED: obs, DESIRED: self._goal}


def build_with_goals(build: Callable[[], Any]) -> GoalTasks:
    """Build one of OGBench's worlds, with goals."""
    return GoalTasks(build())


def with_goals(build: Callable[[], Any]) -> Callable[[], GoalTasks]:
    """Return a factory of such worlds, whose copies have tasks in turn."""
    factory: Any = functools.partial(build_with_goals, build)
    factory.has_tasks = True
    return factory
