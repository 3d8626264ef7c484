"""In the world: an agent beside the policy that made its log, by chance and in its mode.

That a learner beats the mean return of its log says little: imitating the log and acting by the
likeliest action often does so too (Qin 2022, arXiv:2102.00714).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sterling import algorithms
from sterling.data import Dataset
from sterling.judging.clone import cloned
from sterling.judging.policies import same_problem
from sterling.statistics import Estimate, estimate
from sterling.statistics.declared import Bounds
from sterling.training.agent import Agent
from sterling.training.judge import Judge
from sterling.training.logbook import in_world
from sterling.training.trained import bounds
from sterling.types import Action, Obs

BEST = 0.1  # of the log's episodes


@dataclasses.dataclass(frozen=True)
class Beside:
    """Undiscounted returns: of policies in the world, and of the log's episodes.

    With several seeds a policy's interval is over seeds (the agents', and as many imitations);
    with one it is over episodes: it speaks of that one policy.
    """

    agent: Estimate
    sampled: Estimate  # the imitated behaviour, by chance
    deterministic: Estimate  # the same by its likeliest actions
    dataset: Estimate
    best: Estimate  # the log's best tenth
    per_seed: tuple[float, ...]  # the agents'


class Sampled(Agent):
    """Acts by chance, whatever it is asked."""

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """As :meth:`Agent.act` to explore."""
        return super().act(obs, keys, True)


def beside_behaviour(
    run: Any,
    dataset: Dataset,
    episodes: int = 20,
    *,
    limit: int | None = None,
    level: float = 0.95,
    **fields: Any,
) -> Beside:
    """A ``TrainedRun`` and imitations of its log, ``episodes`` each for every seed.

    ``limit``: steps after which an episode counts as it stands (None: as the run was asked).
    ``fields``: of the imitation (:func:`sterling.judging.cloned`). Raises Mistake for a log of
    another problem.
    """
    settings = run.settings
    imitates: Any = algorithms.find("bc")
    judge = Judge(settings, episodes, limit)
    try:
        dataset = in_world(dataset, judge.world, settings.name, checked=False)
        same_problem(judge.world.spec, dataset.spec)
        clones = [cloned(dataset, seed=seed, **fields).state for seed in settings.seeds]
        state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *clones)
        imitators = [kind(state, imitates, None, "map") for kind in (Sampled, Agent)]
        found = [judge(agent)["return"] for agent in (run.agent, *imitators)]
    finally:
        judge.close()
    failed = run.result.get("failed_seeds", [])
    kept = np.array([seed not in failed for seed in settings.seeds])
    ends = bounds(settings)
    agent = _over(found[0][kept], level, ends)
    sampled, likeliest = (_over(each, level, ends) for each in found[1:])
    per_seed = tuple(float(x) for x in found[0].mean(1))
    of_log = estimate(dataset.returns, level=level, within=ends)
    best = estimate(dataset.returns, _best, level=level, draws=1000)
    of_log, best = (
        dataclasses.replace(one, method=f"{one.method} over episodes") for one in (of_log, best)
    )
    return Beside(agent, sampled, likeliest, of_log, best, per_seed)


def _over(returns: Float[np.ndarray, "seed env"], level: float, ends: Bounds | None) -> Estimate:
    several = len(returns) > 1
    made = estimate(returns.mean(1) if several else returns[0], level=level, within=ends)
    unit = f"{len(returns)} seeds" if several else f"{returns.shape[1]} episodes of one seed"
    return dataclasses.replace(made, method=f"{made.method} over {unit}")


def _best(table: Float[np.ndarray, "episode one"]) -> float:
    """The mean of the best tenth, as of ``Dataset.top``."""
    count = max(round(BEST * len(table)), 1)
    return float(np.sort(table[:, 0])[-count:].mean())
