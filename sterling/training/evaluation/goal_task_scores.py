"""Scores by task, in worlds whose copies have tasks of their own (``goal_worlds/goal_tasks.py``):
an evaluation plays each task equally often, and says beside the success of all how often each
task was solved."""

from __future__ import annotations

from typing import Any

import numpy as np

from sterling.envs.goal_worlds.goal_tasks import GOALS, SUCCESS, TASKS, seed_of_copy, task_name
from sterling.problem.channels import Channel
from sterling.training.config.settings import Settings
from sterling.types import Mistake


def has_tasks(settings: Settings) -> bool:
    """Whether the copies of a run's world have tasks of their own."""
    return bool(settings.env_options.get(GOALS))


def check_episodes(settings: Settings, episodes: int) -> None:
    """Raise Mistake for a number of episodes that does not play each task equally often."""
    if has_tasks(settings) and episodes % TASKS:
        raise Mistake(
            f"{settings.name} is evaluated in {TASKS} tasks, each equally often. Give a multiple "
            f"of {TASKS} episodes (OGBench's evaluations have 250), not {episodes}."
        )


def with_task_columns(found: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the columns ``(seed, episode)`` of an evaluation, and of each task the success in its
    episodes, ``(seed, episode of the task)``: copies play one episode in turn."""
    if not has_tasks(settings) or SUCCESS not in found:
        return found
    solved = found[SUCCESS]
    return {**found, **{task_name(k): solved[:, k::TASKS] for k in range(TASKS)}}


def without_task_columns(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the columns that have one number of each episode."""
    names = {task_name(k) for k in range(TASKS)}
    return {name: column for name, column in found.items() if name not in names}


def with_task_channels(channels: dict[str, Channel], settings: Settings) -> dict[str, Channel]:
    """Return the channels of an evaluation: the world's, and each task's success."""
    if not has_tasks(settings) or SUCCESS not in channels:
        return channels
    return channels | {task_name(k): channels[SUCCESS] for k in range(TASKS)}


def seed_of_reset(own: int, env: int, settings: Settings) -> int:
    """Return the seed with which a copy is reset first, given that of a world without tasks."""
    return seed_of_copy(own, env) if has_tasks(settings) else own
