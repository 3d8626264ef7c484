"""Evaluate a run's agents: by episodes in separate worlds, or by scenes for language models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from sterling.algorithms.unplanned_algorithm import UnplannedAlgorithm
from sterling.envs.compiled.envpool_env import env_seed
from sterling.envs.goal_worlds.goal_tasks import TASKS
from sterling.envs.registry import find_backend
from sterling.problem.channels import Channel
from sterling.problem.episode_summaries import Summary
from sterling.report.episodes.episodes_file import EvaluatedEpisodes
from sterling.report.episodes.summary_columns import summary_columns
from sterling.training.agent import Agent
from sterling.training.assembly.build_run import check_has_environment, make_world
from sterling.training.config.settings import Settings
from sterling.training.evaluation.episode_recorder import EpisodeRecorder
from sterling.training.evaluation.evaluate_policy import evaluate
from sterling.training.evaluation.goal_task_scores import (
    check_episodes,
    has_tasks,
    seed_of_reset,
    with_task_channels,
    with_task_columns,
    without_task_columns,
)
from sterling.training.evaluation.save_episodes import save_episodes
from sterling.training.fields.config_fields import episode_count, episode_step_limit
from sterling.training.phases.phase_sequence import worlds_by_name
from sterling.training.runtime import program_store
from sterling.training.runtime.memory_footprint import check_evaluation_memory

MAX_COPIES = 8  # environments of a seed at once if they run in processes: some take 60 MB

SEEDED_BACKENDS = ("envpool", "gymnasium", "factory", "pettingzoo")  # reset with a seed of its own


class Evaluator:
    """Evaluates agents of one run by ``episodes`` episodes for each seed.

    The episodes are the same every time, except in worlds that run in processes. ``limit``: steps
    after which an episode is cut (None: the run's setting). ``fresh``: the episodes are others than
    those of the periodic evaluations. ``record``: the steps of each seed's
    worst and best episodes are recorded for :meth:`kept`, if the world is stepped from the host
    anyway. Raise Mistake for more episodes than can be played."""

    def __init__(
        self,
        settings: Settings,
        episodes: int | float,
        limit: int | None = None,
        *,
        fresh: bool = False,
        record: bool = False,
    ):
        self._settings, self._episodes = settings, episode_count("episodes", episodes, 1)
        self._fresh, self._purpose = fresh, "evaluate/fresh" if fresh else "evaluate"
        self._limit = settings.evaluate_limit if limit is None else episode_step_limit(limit)
        check_evaluation_memory(settings, self._episodes)
        check_episodes(settings, self._episodes)
        self._seeds = jnp.asarray(np.asarray(settings.seeds, np.int32))
        self._record = record
        self._recorder: EpisodeRecorder | None = None
        self.world: Any = None  # None: a language run, evaluated in scenes
        if settings.speech is None:
            check_has_environment(settings)
            self.world = make_world(
                settings, self._purpose, _copies_per_seed(settings, self._episodes)
            )

    def __call__(self, agent: Agent) -> dict[str, np.ndarray]:
        """Return "return", "length", the channels' columns and, for episodes in a world, "ended":
        whether each ended within the limit; ``(seed, episode)``. The world's summaries are
        ``(seed, 1)``."""
        if self.world is not None:
            self._recorder = self._new_recorder()
            how: Any = {"recorder": self._recorder, "fresh": self._fresh}
            own = not isinstance(agent.algorithm, UnplannedAlgorithm)  # as the settings make it
            stored = own and program_store.is_open_for(self._settings)
            how |= {"stored_as": self._purpose if stored else ""}
            found = evaluate(agent, self.world, self._seeds, self._episodes, self._limit, **how)
            summed = summary_columns(found, self.world.spec.summaries, self._settings.seeds)
            return {**with_task_columns(found, self._settings), **summed}
        from sterling.training.language.evaluate_scenes import evaluate_in_scenes

        return evaluate_in_scenes(
            agent, self._settings, self._seeds, self._episodes, fresh=self._fresh
        )

    def kept(self, found: dict[str, np.ndarray], **facts: Any) -> EvaluatedEpisodes:
        """Return the episodes of the last call, which returned ``found``, to be written with
        ``facts`` about the policies."""
        world, seeds = self.world, self._settings.seeds
        backend = find_backend(self._settings.environment)[0] if world is not None else ""
        envs = self._episodes if world is None else world.spec.envs
        resets = [[self._reset_seed(seed, env) for env in range(envs)] for seed in seeds]
        facts |= {
            "environment": self._settings.name,
            "seeds": list(seeds),
            "envs": envs,
            "fresh": self._fresh,
            "reset_seeds": resets if backend in SEEDED_BACKENDS else None,
        }
        recorder, summaries = self._recorder, self.summaries
        found = {name: x for name, x in found.items() if name not in summaries}
        found = without_task_columns(found)
        return EvaluatedEpisodes(facts, found, {} if recorder is None else recorder.steps)

    def _reset_seed(self, seed: int, env: int) -> int:
        return seed_of_reset(env_seed(seed, env, "evaluate"), env, self._settings)

    def _new_recorder(self) -> EpisodeRecorder | None:
        if not self._record or self.world.traced:
            return None
        return EpisodeRecorder(list(self._settings.seeds), self.world.spec)

    @property
    def channels(self) -> dict[str, Channel]:
        """Return the world's channels, and the success in each of its tasks."""
        if self.world is None:
            return {}
        return with_task_channels(dict(self.world.spec.channels), self._settings)

    @property
    def summaries(self) -> dict[str, Summary]:
        """Return the world's summaries."""
        return {} if self.world is None else self.world.spec.summaries

    def close(self) -> None:
        """Release the world."""
        if self.world is not None:
            self.world.close()


class PhaseEvaluators:
    """Evaluates agents in the worlds of all phases of a run; see :class:`Evaluator`."""

    def __init__(self, settings: Settings, episodes: int | float, record: bool = False):
        places = worlds_by_name(settings)
        self._judges = {
            name: Evaluator(each, episodes, record=record) for name, each in places.items()
        }

    def __call__(self, agent: Agent) -> dict[str, dict[str, np.ndarray]]:
        """Return the results of every world by its name."""
        return {name: judge(agent) for name, judge in self._judges.items()}

    def save(
        self, folder: Path, world: str, found: Any, at: dict[str, int], failed: Iterable[int]
    ) -> None:
        """Write the last episodes in ``world`` to a run's folder. ``found``: what the call
        returned; ``at``: the policies' step and update; ``failed``: the seeds that failed."""
        facts = {**at, "final": False, "failed_seeds": list(failed)}
        save_episodes(folder, self._judges[world].kept(found[world], **facts))

    def close(self) -> None:
        """Release the worlds."""
        for judge in self._judges.values():
            judge.close()


def _copies_per_seed(settings: Settings, episodes: int) -> int:
    """Return the number of environments of each seed."""
    if has_tasks(settings):
        return TASKS
    in_processes = find_backend(settings.environment)[0] in ("gymnasium", "factory", "pettingzoo")
    return min(episodes, MAX_COPIES) if in_processes else episodes
