"""An environment's options as a run keeps them. Worlds that show their goals only if asked are
asked to, for learners of goals; trials show what their inner episodes led to."""

from __future__ import annotations

from typing import Any

from sterling.envs.env_options import with_final
from sterling.envs.goal_worlds.goal_tasks import GOALS, is_goal_world
from sterling.envs.summaries import absolute_options
from sterling.needs.goal_rows import draws_goals


def kept_options(algorithm: Any, environment: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the environment's options: paths are absolute, and goals are observed if the algorithm
    learns goals and the world has such an option. Trials name ``final``."""
    options = with_final(environment, absolute_options(options), True)
    if not is_goal_world(environment):
        return options
    needs = algorithm.needs(algorithm.Config())
    return {GOALS: True, **options} if draws_goals(needs) else options
