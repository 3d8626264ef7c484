"""A world whose observations say which seed, env, episode and step they are of."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling.types import Spec, Step

SEEDS, ENVS = 2, 3


def length(seed, env, episode):
    """Steps of an episode."""
    return 1 + (5 * episode + 3 * env + seed) % 6


class Marked:
    """What is observed and achieved says which seed, env, episode and step it is, and what is
    wanted is never achieved; the reward is 1000."""

    exact = traced = True
    stack = 1

    def __init__(self):
        four = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        obs = spaces.Dict(dict.fromkeys(names, four))
        self.seeds, self.spec = SEEDS, Spec(obs, spaces.Discrete(2), ENVS)

    def seen(self, now):
        now = now.astype(jnp.float32)
        wanted = now.at[..., 0].set(-1.0).at[..., 3].set(0.0)
        return {"observation": now, "achieved_goal": now, "desired_goal": wanted}

    def reset(self, keys):
        seed = jnp.broadcast_to(jnp.arange(SEEDS, dtype=jnp.int32)[:, None], (SEEDS, ENVS))
        env = jnp.broadcast_to(jnp.arange(ENVS, dtype=jnp.int32)[None], (SEEDS, ENVS))
        now = jnp.stack([seed, env, jnp.zeros_like(seed), jnp.zeros_like(seed)], -1)
        return (now, jnp.zeros((SEEDS, ENVS), bool)), self.seen(now)

    def step(self, state, action, keys):
        now, ended = state
        seed, env, episode, step = (now[..., i] for i in range(4))
        episode, step = jnp.where(ended, episode + 1, episode), jnp.where(ended, 0, step + 1)
        last = ~ended & (step == length(seed, env, episode))
        now = jnp.stack([seed, env, episode, step], -1)
        reward = jnp.where(ended, 0.0, 1000.0)
        discount = jnp.where(last & (episode % 2 == 0), 0.0, 1.0)
        return (now, last), Step(self.seen(now), reward, discount, last, ~ended)

    def close(self):
        pass


class Idle(eqx.Module):
    """Does nothing."""

    def act(self, obs, keys, explore):
        return jnp.zeros(obs["observation"].shape[:2], jnp.int32), {}


def begun(seed, env, episode):
    """The row in which an episode began: one more is masked after each of those before."""
    return sum(length(seed, env, each) + 1 for each in range(episode))
