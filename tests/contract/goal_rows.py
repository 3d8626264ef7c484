"""Rows of a log with goals, made from other rows: goals of one number less than observations, or as
many, of which some are reached, and way points."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

GOAL = 2  # numbers


def goal_space(obs, size=GOAL):
    """Return observations of the space ``obs`` with goals of ``size`` numbers."""
    goal = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    return spaces.Dict({"observation": obs, "achieved_goal": goal, "desired_goal": goal})


def with_goals(batch, feed, garbage, size=GOAL):
    """Return the batch with the goals, rewards and discounts that ``feed`` asks for."""
    rng = np.random.default_rng(9)
    rows, wrong = len(batch.mask), np.where(batch.mask, 0.0, garbage)[:, None]
    wanted, far = rng.normal(size=(2, rows, size)) + wrong
    reached = np.arange(rows) % 5 == 2
    achieved = np.asarray(batch.obs)[:, :size]
    wanted = np.where(reached[:, None], achieved, wanted)
    extras = {"policy_goal": far}
    if feed.goals.ahead:
        extras["way_point"], extras["policy_way_point"] = rng.normal(size=(2, rows, size)) + wrong
        extras["policy_way_point_obs"] = rng.normal(size=np.shape(batch.obs)) + wrong
    extras = {name: jnp.asarray(x, jnp.float32) for name, x in extras.items()}
    goal = jnp.asarray(wanted, jnp.float32)
    obs, next_obs = (
        {"observation": x, "achieved_goal": x[:, :size], "desired_goal": goal}
        for x in (batch.obs, batch.next_obs)
    )
    far = jnp.asarray(~reached, jnp.float32)
    return dataclasses.replace(
        batch, obs=obs, next_obs=next_obs, reward=-far, discount=far, extras=extras
    )
