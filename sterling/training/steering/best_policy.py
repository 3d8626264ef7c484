"""The policy of each seed's best periodic evaluation, kept beside the last one (``keep="best"``).

Each seed keeps the policy of its own best evaluation, chosen from its own evaluations alone. So the
scores of the kept policies are as independent as the seeds are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from sterling.training.agent import Agent
from sterling.training.loop import Run
from sterling.training.steering.judged_score import JudgedScore


class SavedRun(eqx.Module):
    """What a checkpoint contains of a run that keeps its best policy: see :class:`Run`."""

    agent: Agent
    source: Any
    seeds: Int[Array, "seed"]
    iteration: Int[Array, ""]
    best: Agent


class BestPolicy:
    """The best policy of each seed so far; the first one until there is an evaluation."""

    def __init__(self, agent: Agent, seeds: int, state: dict[str, Any], score: JudgedScore):
        self.score = score
        self.agent: Agent = jax.device_get(agent.without_schedules())
        self.scores: list[float | None] = state.get("returns", [None] * seeds)
        self.steps: list[int | None] = state.get("steps", [None] * seeds)

    def consider(self, agent: Agent, scores: Sequence[float | None], step: int) -> None:
        """Keep the policies whose ``scores`` are better than those of the kept ones; ``step``: the
        progress at which they were evaluated."""
        better = np.array(list(map(self._is_better, scores, self.scores)))
        if not better.any():
            return
        self.agent = _choose(better, jax.device_get(agent.without_schedules()), self.agent)
        for at in map(int, np.flatnonzero(better)):
            self.scores[at], self.steps[at] = scores[at], step

    def begin_phase(self, agent: Agent) -> None:
        """Begin anew: returns of two worlds cannot be compared."""
        self.agent = jax.device_get(agent.without_schedules())
        self.scores, self.steps = [None] * len(self.scores), [None] * len(self.steps)

    def with_run(self, run: Run) -> SavedRun:
        """Return what a checkpoint contains of the run and of the best agents."""
        return SavedRun(run.agent, run.source, run.seeds, run.iteration, self.agent)

    def to_json(self) -> dict[str, Any]:
        """Return each seed's best score, and the progress at which it was measured."""
        return {"returns": self.scores, "steps": self.steps}

    def _is_better(self, new: float | None, old: float | None) -> bool:
        return new is not None and (old is None or self.score.is_better(new, old))


def _choose(mask: Bool[np.ndarray, "seed"], new: Agent, old: Agent) -> Agent:
    """Return the agents with the state ``new`` where the mask is True, else ``old``."""
    if mask.all():
        return new

    def choose(one: Any, other: Any) -> Any:
        if not hasattr(one, "ndim"):
            return one
        wide = mask.reshape(-1, *(1,) * (one.ndim - 1))
        is_key = jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key)
        return jnp.where(wide, one, other) if is_key else np.where(wide, one, other)

    state = jax.tree.map(choose, new.state, old.state)
    return eqx.tree_at(lambda agent: agent.state, new, state)
