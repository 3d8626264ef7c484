"""What the check makes itself: problems for algorithms that name none, logs and teachers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sterling.checking.problems.checked_problem import asks_random_log, small_number_of_envs
from sterling.checking.problems.random_log import write_random_log
from sterling.needs.feed import TEACHER_ACTION
from sterling.needs.goal_rows import draws_goals
from sterling.training.api import train

TEACHER: dict[str, Any] = {  # hardly trained
    **{"algorithm": "a2c", "width": 16, "steps": 64, "preset": False, "evaluate_episodes": 0}
}
WORLDS = {  # whose actions are discrete, continuous
    "team": ("probe:limits-team", "probe:limits-continuous-team"),
    "goals": ("probe:goals", "probe:goals-continuous"),
    "log": ("probe:limits", "probe:limits-continuous"),
    "costs": ("probe:both-costly", "probe:both-continuous-costly"),
    "": ("probe:both", "probe:both-continuous"),
}
TASKS = {  # where algorithms that adapt do so: levels that observations do not show
    "discrete": "probe:levels-hidden",
    "continuous": "probe:levels-hidden-continuous",
}


def made_problems(algorithm: Any, needs: Any, logged: bool) -> dict[str, dict[str, Any]]:
    """Return a problem of each kind of actions, "discrete" and "continuous": arguments of
    ``train``. Whether a problem is ``logged`` is asked of those that could also act in a world."""
    kind = "log" if needs.only_from_logs or logged else ""
    if getattr(algorithm, "several_agents", False):
        kind = "team"
    elif hasattr(algorithm.Config, "cost_limit"):
        kind = "costs"
    elif draws_goals(needs):
        kind = "goals"
    discrete, continuous = WORLDS[kind]
    return {"discrete": {"environment": discrete}, "continuous": {"environment": continuous}}


def has_known_answers(options: dict[str, Any]) -> bool:
    """Whether the right values and actions of a problem that was made are known: those of probes,
    but not what a teacher that was hardly trained does."""
    return options.get("environment") in WORLDS[""] and "teacher" not in options


def complete_problem(options: dict[str, Any], needs: Any, folder: Path) -> dict[str, Any]:
    """Return a problem with what it lacks: the number of envs, and in ``folder`` the log or the
    teacher that the algorithm needs."""
    made = dict(options)
    world = {"environment": made.get("environment"), "env_options": made.get("env_options", {})}
    lacks = "data" not in made and (needs.only_from_logs or needs.beside_log)
    if asks_random_log(made) or lacks:
        made["data"] = write_random_log(**world, folder=folder)
    if "data" not in made or needs.beside_log:
        made.setdefault("envs", small_number_of_envs(needs))
    if TEACHER_ACTION in needs.keep and "teacher" not in made:
        made["teacher"] = folder / "teacher"
        train(**TEACHER, **world, out=made["teacher"], quiet=True)
    return made
