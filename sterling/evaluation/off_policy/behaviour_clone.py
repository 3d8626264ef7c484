"""Clone the policy that made a dataset with ``bc``, by maximum likelihood of pi(a|s).

It serves importance sampling with an unknown behaviour policy; estimating that policy from the same
data can even give better estimates than its true probabilities (Hanna 2019, arXiv:1806.01347). Its
mode is the deterministic behaviour policy, a baseline for offline learners (Qin 2022,
arXiv:2102.00714). For boxes it is a normal distribution with state-independent deviation, so
multi-modal behaviour is not cloned well.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from sterling import random_keys
from sterling.algorithms.offline import bc
from sterling.data import Dataset
from sterling.data.episode_returns import summarise_log
from sterling.evaluation.off_policy.minibatch_fit import fit_minibatches
from sterling.evaluation.off_policy.policy_probabilities import TrainedPolicy
from sterling.nets.action_heads import Actions
from sterling.training.fields.config_fields import make_config

UPDATES = 3000
# small, so that it does not memorise the dataset
DEFAULT_FIELDS: dict[str, Any] = {
    "lr": 1e-3,
    "width": 128,
}


def clone_behaviour(
    dataset: Dataset, *, seed: int = 0, updates: int = UPDATES, **fields: Any
) -> TrainedPolicy:
    """Train a clone of the behaviour policy for ``updates`` updates; ``fields`` are those of
    ``bc.Config`` (defaults here: lr 1e-3 and width 128)."""
    config = make_config(bc, {**DEFAULT_FIELDS, **fields}, "bc")
    spec = dataclasses.replace(dataset.spec, log=summarise_log(dataset))
    start, rows = random_keys.split(jax.random.key(seed), "clone", 2)
    state = bc.init(start, spec, config)
    state, _ = fit_minibatches(
        bc.learn, state, dataset, updates=updates, batch=config.batch, key=rows
    )
    return TrainedPolicy(state, bc, Actions.from_space(spec.action), sampled=True)


def deterministic(policy: TrainedPolicy) -> TrainedPolicy:
    """Return the same policy, acting by its mode."""
    return dataclasses.replace(policy, sampled=False)
