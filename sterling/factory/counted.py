"""What training lived through in the units of its score, where it learned from other rewards."""

from __future__ import annotations

import array
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.experimental import io_callback
from jaxtyping import Key, PyTree

from sterling.envs.wrappers import Wrapper
from sterling.types import Action, Record, Step, World


class Counted(Wrapper):
    """Remembers on the host what every step counts for, where the learner is told another reward,
    its sign say. It answers as ``world`` does."""

    def __init__(self, world: World):
        super().__init__(world)
        self._rewards = array.array("f")  # (time, env) end to end, of one seed

    def step(
        self, state: PyTree, action: Action, keys: Key[jax.Array, "seed"]
    ) -> tuple[PyTree, Step]:
        """Step, and remember."""
        state, step = super().step(state, action, keys)
        if step.score is not None and self.traced:
            io_callback(self._keep, None, step.score.reward, ordered=True)
        elif step.score is not None:
            self._keep(step.score.reward)
        return state, step

    def of(self, rows: Record) -> Record:
        """The newest rows ``(time, env, ...)`` with the rewards that count."""
        jax.effects_barrier()  # programs may still be running
        if not self._rewards:
            return rows
        time, envs = rows.mask.shape
        counted = np.frombuffer(self._rewards, np.float32).reshape(-1, envs)[-time:]
        reward = np.where(rows.mask, counted, np.float32(0.0))
        return eqx.tree_at(lambda rows: rows.reward, rows, reward)

    def _keep(self, reward: Any) -> None:
        self._rewards.frombytes(np.ascontiguousarray(reward, np.float32).tobytes())
