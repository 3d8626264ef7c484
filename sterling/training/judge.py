"""Who judges a run's agents: episodes in a world of their own, or scenes that were never asked."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from sterling.training.agent import Agent
from sterling.training.evaluate import evaluate
from sterling.training.settings import Settings
from sterling.training.start import make_world


class Judge:
    """Evaluates agents of one run, ``episodes`` for each seed, always the same ones."""

    def __init__(self, settings: Settings, episodes: int):
        self._settings, self._episodes = settings, episodes
        self._seeds = jnp.asarray(settings.seeds, jnp.int32)
        self._world: Any = None
        if settings.speech is None:
            self._world = make_world(settings, "evaluate", episodes)

    def __call__(self, agent: Agent) -> dict[str, np.ndarray]:
        """ "return" and "length" of every episode, ``(seed, episode)``."""
        if self._world is not None:
            return evaluate(agent, self._world, self._seeds)
        from sterling.training import speech

        return speech.evaluate(agent, self._settings, self._seeds, self._episodes)

    def close(self) -> None:
        """Release the world."""
        if self._world is not None:
            self._world.close()
