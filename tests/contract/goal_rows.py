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
    """Return the batch with the goals that ``feed`` has beside it; its rewards are of others."""
    rng = np.random.default_rng(9)
    rows, wrong = len(batch.mask), np.where(batch.mask, 0.0, garbage)[:, None]
    wanted, far = rng.normal(size=(2, rows, size)) + wrong
    reached = np.arange(rows) % 5 == 2
    achieved = np.asarray(batch.obs)[:, :size]
    found = {"goal": (np.where(reached[:, None], achieved, wanted), batch.obs)}
    found["policy_goal"] = far, batch.obs
    if any(each.name == "way_point" for each in feed.beside):
        near, farther = rng.normal(size=(2, rows, size)) + wrong
        found["way_point"] = near, batch.obs
        there = rng.normal(size=np.shape(batch.obs)) + wrong
        found["policy_way_point"] = farther, there
    nowhere = jnp.zeros((rows, size))
    own = dataclasses.replace(
        batch, obs=_seen(batch.obs, nowhere), next_obs=_seen(batch.next_obs, nowhere), extras={}
    )
    beside = {
        name: dataclasses.replace(own, obs={**_seen(obs, nowhere), "achieved_goal": _floats(goal)})
        for name, (goal, obs) in found.items()
    }
    return dataclasses.replace(own, beside=beside)


def goals_of(batch):
    """Return what an oracle reads of the rows beside a batch: the goals, what is observed at them,
    and the rewards and discounts of the values' goal."""
    if not batch.beside:
        return {}
    found = {}
    for name, each in batch.beside.items():
        found |= {name: each.obs["achieved_goal"], f"{name}_obs": each.obs["observation"]}
    far = ~(np.asarray(batch.obs["achieved_goal"]) == np.asarray(found["goal"])).all(-1)
    return found | {"reward": -far.astype(np.float32), "discount": far.astype(np.float32)}


def _seen(obs, goal):
    obs = _floats(obs)
    return {"observation": obs, "achieved_goal": obs[:, : goal.shape[1]], "desired_goal": goal}


def _floats(x):
    return jnp.asarray(x, jnp.float32)
