"""Compare an agent with the policy that made its dataset, in the environment: sampled, and by its
mode.

An agent that beats its dataset's mean return shows little: a clone of the behaviour policy that
acts by its mode often does too (Qin 2022, arXiv:2102.00714).
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
from sterling.evaluation.off_policy.behaviour_clone import clone_behaviour
from sterling.evaluation.off_policy.policy_probabilities import check_same_problem
from sterling.statistics import Estimate, estimate
from sterling.statistics.scores.score_bounds import Bounds
from sterling.training.agent import Agent
from sterling.training.assembly.run_dataset import fit_to_world
from sterling.training.evaluation.evaluator import Evaluator
from sterling.training.trained_run import run_return_bounds
from sterling.types import Action, Obs

BEST_SHARE = 0.1  # share of the dataset's episodes


@dataclasses.dataclass(frozen=True)
class BehaviourComparison:
    """Undiscounted returns: of policies in the environment, and of the dataset's episodes.

    With several seeds a policy's interval is over seeds (the agents', and as many clones); with one
    seed it is over episodes, and says nothing about other seeds.
    """

    agent: Estimate
    sampled: Estimate  # the cloned behaviour policy, sampled
    deterministic: Estimate  # the same by its mode
    dataset: Estimate
    best: Estimate  # the dataset's best tenth
    per_seed: tuple[float, ...]  # the agents' mean return per seed


class SamplingAgent(Agent):
    """An agent that always samples its actions."""

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Act as :meth:`Agent.act` with ``explore=True``."""
        return super().act(obs, keys, True)


def compare_with_behaviour(
    run: Any,
    dataset: Dataset,
    episodes: int = 20,
    *,
    limit: int | None = None,
    level: float = 0.95,
    **fields: Any,
) -> BehaviourComparison:
    """Evaluate a ``TrainedRun`` and clones of its dataset's policy, ``episodes`` episodes for every
    seed.

    ``limit``: maximum steps per episode (None: as the run's settings say). ``fields``: of the clone
    (:func:`sterling.evaluation.clone_behaviour`). Raises Mistake for a dataset with other spaces.
    """
    settings = run.settings
    imitates: Any = algorithms.find("bc")
    judge = Evaluator(settings, episodes, limit, fresh=run.needs_fresh_episodes)
    try:
        dataset = fit_to_world(dataset, judge.world, settings.name, checked=False)
        check_same_problem(judge.world.spec, dataset.spec)
        clones = [clone_behaviour(dataset, seed=seed, **fields).state for seed in settings.seeds]
        state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *clones)
        imitators = [kind(state, imitates, None, "map") for kind in (SamplingAgent, Agent)]
        found = [judge(agent)["return"] for agent in (run.agent, *imitators)]
    finally:
        judge.close()
    failed = run.result.get("failed_seeds", [])
    kept = np.array([seed not in failed for seed in settings.seeds])
    ends = run_return_bounds(settings)
    agent = _estimate_return(found[0][kept], level, ends)
    sampled, likeliest = (_estimate_return(each, level, ends) for each in found[1:])
    per_seed = tuple(float(x) for x in found[0].mean(1))
    of_log = estimate(dataset.returns, level=level, within=ends)
    best = estimate(dataset.returns, _mean_of_best, level=level, draws=1000)
    of_log, best = (
        dataclasses.replace(one, method=f"{one.method} over episodes") for one in (of_log, best)
    )
    return BehaviourComparison(agent, sampled, likeliest, of_log, best, per_seed)


def _estimate_return(
    returns: Float[np.ndarray, "seed env"], level: float, ends: Bounds | None
) -> Estimate:
    several = len(returns) > 1
    made = estimate(returns.mean(1) if several else returns[0], level=level, within=ends)
    unit = f"{len(returns)} seeds" if several else f"{returns.shape[1]} episodes of one seed"
    return dataclasses.replace(made, method=f"{made.method} over {unit}")


def _mean_of_best(table: Float[np.ndarray, "episode one"]) -> float:
    """Return the mean of the best tenth, as ``Dataset.top`` selects it."""
    count = max(round(BEST_SHARE * len(table)), 1)
    return float(np.sort(table[:, 0])[-count:].mean())
