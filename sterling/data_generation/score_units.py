"""Record the rewards that scores count, for training runs that learn from other rewards."""

from __future__ import annotations

import array
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.experimental import io_callback
from jaxtyping import Key, PyTree

from sterling.envs.world_wrappers import Wrapper
from sterling.types import Action, Record, Step, World


class ScoreRecorder(Wrapper):
    """A wrapper that records on the host the reward that the score counts at every step, where the
    learner gets another reward (its sign, for instance). It changes nothing else."""

    def __init__(self, world: World):
        super().__init__(world)
        self._rewards = array.array("f")  # (time, env) end to end, of one seed

    def step(
        self, state: PyTree, action: Action, keys: Key[jax.Array, "seed"]
    ) -> tuple[PyTree, Step]:
        """Step the environment, and record the reward that the score counts."""
        state, step = super().step(state, action, keys)
        if step.score is not None and self.traced:
            io_callback(self._record, None, step.score.reward, ordered=True)
        elif step.score is not None:
            self._record(step.score.reward)
        return state, step

    def with_scored_rewards(self, rows: Record) -> Record:
        """Return the newest rows ``(time, env, ...)`` with the rewards that the score counts."""
        jax.effects_barrier()  # wait for callbacks of programs that are still running
        if not self._rewards:
            return rows
        time, envs = rows.mask.shape
        counted = np.frombuffer(self._rewards, np.float32).reshape(-1, envs)[-time:]
        reward = np.where(rows.mask, counted, np.float32(0.0))
        return eqx.tree_at(lambda rows: rows.reward, rows, reward)

    def _record(self, reward: Any) -> None:
        self._rewards.frombytes(np.ascontiguousarray(reward, np.float32).tobytes())
