"""Goal-conditioned worlds: the goal is part of the observation, and rewards can be recomputed.

Such a world observes a dict with the entries of Gymnasium's goal environments, and offers a
*judge*, ``Spec.judge``: a pure function of arrays ``judge(achieved, desired) -> (reward,
discount)``, the reward of a step that achieved ``achieved`` when the goal was ``desired``. The
discount is 0 if that ends the episode. The reward must be complete, in the learner's units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gymnasium import spaces

from sterling.system.mistake import Mistake

OBSERVATION, ACHIEVED, DESIRED = "observation", "achieved_goal", "desired_goal"
# Of arrays of JAX, which is not imported here: workers import this file.
GoalJudge: TypeAlias = Callable[[Any, Any], tuple[Any, Any]]


def has_goals(obs: spaces.Space[Any]) -> bool:
    """Whether observations hold an achieved and a desired goal of the same shape."""
    if not isinstance(obs, spaces.Dict) or not {ACHIEVED, DESIRED} <= set(obs.spaces):
        return False
    achieved, desired = obs[ACHIEVED], obs[DESIRED]
    return isinstance(achieved, spaces.Box) and achieved.shape == desired.shape


def goal_judge(task: Any) -> GoalJudge | None:
    """Return a Task's method ``judge``, or None if it has none. Raise Mistake if the Task has a
    judge and does not observe goals."""
    judge = getattr(task, "judge", None)
    if judge is not None and not has_goals(task.obs):
        raise Mistake(
            f"{type(task).__name__} has a judge, but observes {task.obs}. Observe a Dict of "
            f"{OBSERVATION}, {ACHIEVED} and {DESIRED}, the last two Boxes of one shape."
        )
    return judge
