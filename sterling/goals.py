"""Worlds with goals: what is wanted is part of what is observed, and can be judged anew.

Such a world observes a dict with the entries that Gymnasium's goal environments have, and offers a
*judge*, ``Spec.judge``: ``judge(achieved, desired) -> (reward, discount)`` of one step that
achieved the one where the other was wanted, a pure function of arrays; the discount is 0 where that
ends the episode. It must say all of a step's reward, in the units that the learner sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gymnasium import spaces
from jaxtyping import Array

from sterling.types import Mistake

OBSERVATION, ACHIEVED, DESIRED = "observation", "achieved_goal", "desired_goal"
Judge: TypeAlias = Callable[[Array, Array], tuple[Array, Array]]


def has_goals(obs: spaces.Space[Any]) -> bool:
    """Whether observations hold what is achieved and what is desired, in one form."""
    if not isinstance(obs, spaces.Dict) or not {ACHIEVED, DESIRED} <= set(obs.spaces):
        return False
    achieved, desired = obs[ACHIEVED], obs[DESIRED]
    return isinstance(achieved, spaces.Box) and achieved.shape == desired.shape


def judge_of(task: Any) -> Judge | None:
    """How a Task judges goals, its method ``judge``; None where it has none. Raises Mistake for one
    of goals that are not observed."""
    judge = getattr(task, "judge", None)
    if judge is not None and not has_goals(task.obs):
        raise Mistake(
            f"{type(task).__name__} judges goals and observes {task.obs}; observe a Dict of "
            f"{OBSERVATION}, {ACHIEVED} and {DESIRED}, the last two Boxes of one shape"
        )
    return judge
