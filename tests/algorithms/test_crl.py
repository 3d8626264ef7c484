"""The scores that tell own goals from others are, once learned, those of counting."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling.algorithms.goals import crl
from sterling.types import Record, Spec

TIMES = np.array([[6, 1, 1], [1, 4, 2], [2, 2, 5], [1, 1, 6]])  # that (s, a) leads to a goal
PLACES, ACTIONS = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([[-0.9], [0.9], [-0.9], [0.9]])
GOALS = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]])
HIDDEN = 3  # rows without a mask, all with one goal


def seen(place, goal):
    goal = jnp.asarray(goal, jnp.float32)
    return {
        "observation": jnp.asarray(place, jnp.float32),
        "achieved_goal": jnp.zeros_like(goal),
        "desired_goal": goal,
    }


def log_of_counts():
    pair, goal = (np.repeat(index.ravel(), TIMES.ravel()) for index in np.indices(TIMES.shape))
    pair, goal = np.append(pair, [3] * HIDDEN), np.append(goal, [0] * HIDDEN)
    obs, nothing = seen(PLACES[pair], GOALS[goal]), jnp.zeros(len(pair))
    mask = jnp.arange(len(pair)) < TIMES.sum()
    rows = Record(
        obs=obs, action=jnp.asarray(ACTIONS[pair], jnp.float32), reward=nothing, discount=nothing,
        next_obs=obs, last=mask, mask=mask,
    )  # fmt: skip
    goals = dataclasses.replace(rows, obs={**obs, "achieved_goal": obs["desired_goal"]})
    return dataclasses.replace(rows, beside={"goal": goals, "policy_goal": goals})


def test_learned_scores_are_logarithms_of_counts():
    """Of a pair (s, a), g: its count over that of the same goals and pairs in two unlike rows."""
    one, two = (spaces.Box(-1.0, 1.0, (size,), np.float32) for size in (1, 2))
    obs = spaces.Dict({"observation": one, "achieved_goal": two, "desired_goal": two})
    config = crl.Config(lr=0.01, width=16, depth=1, representation=8)
    batch = log_of_counts()

    def update(state, key):
        state, signals = crl.learn(state, batch, key)
        return state, signals.metrics["loss/value"]

    @jax.jit
    def learned(key):
        state = crl.init(key, Spec(obs, one), config)
        state, loss = jax.lax.scan(update, state, jax.random.split(key, 500))
        pair, goal = (index.ravel() for index in np.indices(TIMES.shape))
        asked = seen(PLACES[pair], GOALS[goal]), jnp.asarray(ACTIONS[pair], jnp.float32)
        first = jnp.all(batch.obs["desired_goal"] == GOALS[:1], -1)
        others = dataclasses.replace(batch, mask=batch.mask & ~first)
        found = crl.critics_loss(state.nets.critics, others)["value/found"]
        return crl.action_value(state, *asked), loss[-1], found

    scores, loss, found = learned(jax.random.key(0))
    unlike = TIMES.sum(1, keepdims=True) * TIMES.sum(0, keepdims=True) - TIMES
    np.testing.assert_allclose(scores, np.log(TIMES / unlike).ravel(), atol=0.03)
    share = TIMES / (TIMES + unlike)
    least = -np.sum(TIMES * np.log(share) + unlike * np.log1p(-share)) / TIMES.sum() ** 2
    np.testing.assert_allclose(loss, least, rtol=1e-3)
    own = (1 + 4 + 5 + 6) / TIMES[:, 1:].sum()  # of the last two goals, which each pair likes best
    np.testing.assert_allclose(found, own, rtol=1e-6)
