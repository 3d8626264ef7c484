"""The policy that made a log, imitated by ``bc``: pi(a|s) of greatest likelihood.

For importance sampling with an unknown behaviour policy; estimating it from the very same log may
even make the estimates better than its true probabilities do (Hanna 2019, arXiv:1806.01347). In
its mode it is the deterministic behaviour policy, which learners from logs should be compared with
(Qin 2022, arXiv:2102.00714). Boxes: a normal of one deviation, so behaviour of several modes is
not imitated well.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from sterling import keys
from sterling.algorithms.offline import bc
from sterling.data import Dataset
from sterling.data.returns import summary
from sterling.judging.fit import fit
from sterling.judging.policies import Trained
from sterling.nets.heads import Actions
from sterling.training.fields import make_config

UPDATES = 3000
FIELDS: dict[str, Any] = {"lr": 1e-3, "width": 128}  # small: it must not know the log by heart


def cloned(dataset: Dataset, *, seed: int = 0, updates: int = UPDATES, **fields: Any) -> Trained:
    """The behaviour policy of a log, imitated in ``updates`` from ``seed``; ``fields`` of
    ``bc.Config`` (lr 1e-3 and width 128 unless said otherwise)."""
    config = make_config(bc, {**FIELDS, **fields}, "bc")
    spec = dataclasses.replace(dataset.spec, log=summary(dataset))
    start, rows = keys.deal(jax.random.key(seed), "clone", 2)
    state = bc.init(start, spec, config)
    state, _ = fit(bc.learn, state, dataset, updates=updates, batch=config.batch, key=rows)
    return Trained(state, bc, Actions.of(spec.action), sampled=True)


def deterministic(policy: Trained) -> Trained:
    """The same, always by its likeliest action."""
    return dataclasses.replace(policy, sampled=False)
