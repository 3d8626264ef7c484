"""Who judges a run's agents: episodes in a world of their own, or scenes drawn apart."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from sterling.channels import Channel
from sterling.envs.registry import find
from sterling.training.agent import Agent
from sterling.training.evaluate import evaluate
from sterling.training.fields import limit_of_episodes, number_of_episodes
from sterling.training.footprint import check_episodes
from sterling.training.phases import worlds
from sterling.training.settings import Settings
from sterling.training.start import make_world, needs_world

COPIES = 8  # of a seed's environments at once, where they live in processes: some take 60 MB


class Judge:
    """Evaluates agents of one run, ``episodes`` for each seed: the same ones every time, but in
    worlds that live in processes. ``limit``: steps after which an episode counts as it stands
    (None: those of the run). Raises :class:`Mistake` for more episodes than can be played."""

    def __init__(self, settings: Settings, episodes: int | float, limit: int | None = None):
        self._settings, self._episodes = settings, number_of_episodes("episodes", episodes, 1)
        self._limit = settings.evaluate_limit if limit is None else limit_of_episodes(limit)
        check_episodes(settings, self._episodes)
        self._seeds = jnp.asarray(settings.seeds, jnp.int32)
        self.world: Any = None  # where they are played; None: in scenes
        if settings.speech is None:
            needs_world(settings)
            self.world = make_world(settings, "evaluate", _copies(settings, self._episodes))

    def __call__(self, agent: Agent) -> dict[str, np.ndarray]:
        """ "return", "length", channels by column and, of episodes in a world, whether each came to
        its end within the limit ("ended"); ``(seed, episode)``."""
        if self.world is not None:
            return evaluate(agent, self.world, self._seeds, self._episodes, self._limit)
        from sterling.training import speech

        return speech.evaluate(agent, self._settings, self._seeds, self._episodes)

    @property
    def channels(self) -> dict[str, Channel]:
        """What the world reports beside the reward."""
        return {} if self.world is None else self.world.spec.channels

    def close(self) -> None:
        """Release the world."""
        if self.world is not None:
            self.world.close()


class Judges:
    """Evaluates agents in the worlds of all phases of a run; see :class:`Judge`."""

    def __init__(self, settings: Settings, episodes: int | float):
        places = worlds(settings)
        self._judges = {name: Judge(each, episodes) for name, each in places.items()}

    def __call__(self, agent: Agent) -> dict[str, dict[str, np.ndarray]]:
        """What is found in every world, by its name."""
        return {name: judge(agent) for name, judge in self._judges.items()}

    def close(self) -> None:
        """Release the worlds."""
        for judge in self._judges.values():
            judge.close()


def _copies(settings: Settings, episodes: int) -> int:
    """Environments of each seed."""
    in_processes = find(settings.environment)[0] in ("gymnasium", "factory", "pettingzoo")
    return min(episodes, COPIES) if in_processes else episodes
