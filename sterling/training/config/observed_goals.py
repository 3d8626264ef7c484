"""Worlds that show their goals only if asked: they are, for learners that are asked for goals."""

from __future__ import annotations

from typing import Any

from sterling.envs.goal_worlds.goal_tasks import GOALS, is_goal_world
from sterling.needs.goal_rows import draws_goals


def show_goals(algorithm: Any, environment: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the environment's options, with goals that are observed if the algorithm learns goals
    and the world has such an option."""
    if not is_goal_world(environment):
        return options
    needs = algorithm.needs(algorithm.Config())
    return {GOALS: True, **options} if draws_goals(needs) else options
