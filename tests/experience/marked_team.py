"""A world of three agents that leave in three ways; what is observed says where and when it was."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling.problem.agent_axis import Agents, joint
from sterling.types import Spec, Step

NAMES = ("left", "middle", "right")
SEEDS, ENVS, CHOICES = 2, 3, 4
CUT, OUT = 2, 1  # steps after which left is cut off alone, and middle is out
GONE = 50.0  # what an agent that has left observes


def length(seed, env, episode):
    """Steps of an episode, which terminates if its number is even."""
    return 4 + (episode + env + seed) % 2


def seen(seed, env, episode, step):
    """What is observed in a step of an episode, its axes before those of the entries."""
    seed, env, episode, step = (jnp.asarray(x) for x in (seed, env, episode, step))
    over = (step == length(seed, env, episode)) & (episode % 2 == 0)
    alive = jnp.stack([(step < CUT) & ~over, (step < OUT) & ~over, ~over], -1)
    cut = jnp.stack([step == CUT, step < 0, step < 0], -1)
    each = [jnp.full(seed.shape, agent) for agent in range(len(NAMES))]
    mark = jnp.stack([jnp.stack([seed, env, episode, step, agent], -1) for agent in each], -2)
    parity = jnp.stack([(agent + step + episode) % 2 for agent in each], -1)
    even = jnp.stack([(choice + parity) % 2 == 0 for choice in range(CHOICES)], -1)
    return {
        "observation": jnp.where((alive | cut)[..., None], mark.astype(jnp.float32), GONE),
        "action_mask": jnp.where(alive[..., None], even, True).astype(jnp.int8),
        "alive": alive.astype(jnp.int8),
        "truncated": cut.astype(jnp.int8),
        "state": jnp.stack([seed, env, episode, step], -1).astype(jnp.float32),
    }


def paid(obs, action):
    """Each agent's reward: by its place in the list, the step and its action."""
    each = jnp.broadcast_to(10.0 * jnp.arange(1.0, len(NAMES) + 1), action.shape)
    own = each + obs["state"][..., 3:] + 100.0 * action.astype(jnp.float32)
    return jnp.where(obs["alive"] > 0, own, 0.0)


class MarkedTeam:
    """The world."""

    exact = traced = True
    stack = 1

    def __init__(self):
        one = spaces.Box(-np.inf, np.inf, (5,), np.float32)
        status = dict.fromkeys(("alive", "truncated"), spaces.MultiBinary(len(NAMES)))
        parts = {"observation": joint(one, len(NAMES)), **status}
        parts["action_mask"] = spaces.MultiBinary((len(NAMES), CHOICES))
        parts["state"] = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        agents, action = Agents(NAMES), joint(spaces.Discrete(CHOICES), len(NAMES))
        known = {"channels": agents.channels, "agents": agents, "unseen": ("state",)}
        self.seeds, self.spec = SEEDS, Spec(spaces.Dict(parts), action, ENVS, **known)

    def reset(self, keys):
        seed, env = jnp.meshgrid(jnp.arange(SEEDS), jnp.arange(ENVS), indexing="ij")
        now = (seed, env, jnp.zeros_like(seed), jnp.zeros_like(seed))
        return (now, jnp.zeros(seed.shape, bool)), seen(*now)

    def step(self, state, action, keys):
        (seed, env, episode, step), ended = state
        own = jnp.where(ended[..., None], 0.0, paid(seen(*state[0]), action))
        episode, step = jnp.where(ended, episode + 1, episode), jnp.where(ended, 0, step + 1)
        last = ~ended & (step == length(seed, env, episode))
        now = (seed, env, episode, step)
        discount = jnp.where(last & (episode % 2 == 0), 0.0, 1.0)
        answer = Step(seen(*now), own.sum(-1), discount, last, ~ended, channels={"reward": own})
        return (now, last), answer

    def close(self):
        pass


class FirstAllowed(eqx.Module):
    """Every agent does the first thing that it may do."""

    def act(self, obs, keys, explore):
        return jnp.argmax(obs["action_mask"], -1), {}


class Counting(eqx.Module):
    """Does the same; every agent's memory is the number of observations since the episode began,
    and the sum of its own actions."""

    def memory(self, envs, keys):
        return jnp.zeros((SEEDS, envs, len(NAMES), 2))

    def recall(self, past, obs, keys, explore):
        new = jnp.stack([jnp.ones(past.action.shape), past.action.astype(jnp.float32)], -1)
        return jnp.argmax(obs["action_mask"], -1), past.memory + new, {}
