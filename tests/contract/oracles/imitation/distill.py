"""Imitation of a teacher's actions (Ross 2011), with running moments of observations."""

from __future__ import annotations

from typing import Any

from oracles.offline import bc
from oracles.pieces import normalisers
from oracles.pieces.leaves import Leaves

MOST = 10.0  # deviations at which observations are cut


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Count the batch's observations, then clone the teacher's actions from them."""
    normalisers.count(state, ".normaliser.moments[0]", batch["obs"])
    obs = normalisers.seen(state, batch["obs"], ".normaliser", MOST)
    return bc.clone(state, obs, {**batch, "action": batch["teacher_action"]}, config)
