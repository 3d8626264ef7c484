"""Rewards of rows that want a goal."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from sterling.problem.goal_obs import ACHIEVED, DESIRED
from sterling.types import Record


def wanting(batch: Record, goal: Float[Array, "... n"]) -> Record:
    """Return rows that want ``goal``: reward -1 and discount 1 until they have achieved it, then 0
    and 0. So a value is -(1 - gamma^d) / (1 - gamma), d steps from the goal.

    Deviation from OGBench's code: a goal is achieved where the achieved one equals it (there: where
    it is the same row), which differs in worlds that are in the same state twice.
    """
    same = batch.obs[ACHIEVED] == goal
    reached = same.reshape(*batch.mask.shape, -1).all(-1)
    far = jnp.where(reached, 0.0, 1.0).astype(jnp.float32)
    obs, next_obs = ({**x, DESIRED: goal} for x in (batch.obs, batch.next_obs))
    return dataclasses.replace(batch, obs=obs, next_obs=next_obs, reward=-far, discount=far)
