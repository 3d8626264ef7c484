"""Members of a population that remember: each by itself, and anew with every episode."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array
from gymnasium import spaces

from sterling import random_keys
from sterling.envs.traced_world import TracedWorld
from sterling.experience.rollouts.population_episodes import Population
from sterling.training.agent import Agent
from sterling.types import Feed, Needs, Spec, Step, config

ENVS, SEEDS, LENGTH = 4, constant_array([3, 8], np.int32), 3
UNIT = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Counting:
    """A member's action is its weight times the steps that it remembers, this one included."""

    @config
    class Config:
        scale: float = 0.5

    class State(NamedTuple):
        weight: jax.Array
        config: object

    def needs(self, config):
        return Needs(2 * LENGTH, (Feed("episodes"),))

    def init(self, key, spec, config):
        return self.State(jnp.asarray(config.scale), config)

    def member(self, state, key, env):
        return state._replace(weight=state.weight * (env + 1).astype(jnp.float32))

    def memory(self, state, envs, key):
        return jnp.zeros(envs)

    def recall(self, state, past, obs, key, explore):
        seen = past.memory + 1.0
        return (state.weight * seen)[:, None], seen, {}

    def learn(self, state, batch, key):
        raise AssertionError


class Short:
    """An episode of three steps that pays each action."""

    obs, action = UNIT, UNIT

    def reset(self, key):
        return jnp.zeros(()), jnp.zeros(1)

    def step(self, state, action, key):
        over = state + 1.0 == LENGTH
        return state + 1.0, state[None], action[0], over, jnp.asarray(False)


class Failing:
    """The same on the host; in the first env the world crashes once, in its second step, and its
    episode begins again."""

    traced = exact = False
    seeds = 2
    spec = Spec(UNIT, UNIT, envs=ENVS)

    def reset(self, keys):
        self.clock = np.zeros((2, ENVS), int)
        self.ended, self.crashed = np.zeros((2, ENVS), bool), False
        return None, np.zeros((2, ENVS, 1), np.float32)

    def step(self, state, action, keys):
        mask, crash = ~self.ended, np.zeros((2, ENVS), bool)
        self.clock = np.where(self.ended, 0, self.clock + 1)
        if not self.crashed and self.clock[0, 0] == 2:
            crash[:, 0] = self.crashed = True
        self.clock[crash] = 0
        self.ended = (self.clock == LENGTH) & mask
        obs = self.clock[..., None].astype(np.float32)
        reward = np.where(mask, np.asarray(action)[..., 0], 0.0).astype(np.float32)
        discount = np.where(self.ended, 0.0, 1.0).astype(np.float32)
        return None, Step(obs, reward, discount, self.ended | crash, mask & ~crash)

    def close(self):
        pass


def world(kind):
    if kind == "failing":
        return Failing()
    made = TracedWorld(Short(), (3, 8), ENVS, strategy="map")
    made.traced = kind == "compiled"
    return made


@pytest.mark.parametrize("kind", ["compiled", "host", "failing"])
def test_population_member_memory_resets_with_its_episode(kind):
    own = world(kind)
    algorithm = Counting()
    start = random_keys.for_seeds(SEEDS, "agent", 0)
    agent = Agent.create(algorithm, start, own.spec, algorithm.Config(), "map")
    source = Population.create(own, 2 * LENGTH + 1)
    wanted = 0.5 * np.arange(1.0, ENVS + 1.0) * (1 + 2 + 3)
    for time in range(2):
        source, draws = source.collect(agent, random_keys.for_seeds(SEEDS, "draw", time))
        record = draws.record
        np.testing.assert_array_equal(record.extras["episode/length"], LENGTH)
        np.testing.assert_allclose(record.reward, np.broadcast_to(wanted, (2, ENVS)))
