"""Rewards and channels are real numbers that float32 holds; anything else is refused at its step,
and the environment is named."""

import functools

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from sterling import random_keys
from sterling.envs.hosted.hosted_env import HostWorld
from sterling.envs.hosted.vector_env import VectorWorld
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.envs.traced_world import check_reported
from sterling.envs.user_env import check_task
from sterling.problem.channels import Channel
from sterling.types import Mistake

SEEN = spaces.Box(-np.inf, np.inf, (1,), np.float32)


@functools.cache
def fixed_keys():
    return random_keys.for_seeds(jnp.zeros(1, jnp.int32), "test", 0)


class Paying(gymnasium.Env):
    """Pays ``reward`` and reports ``cost`` from step ``late`` on, before it 1."""

    observation_space, action_space = SEEN, spaces.Discrete(2)

    def __init__(self, reward=1.0, cost=1.0, late=1, usual=1.0):
        self.paid, self.late, self.usual = (reward, cost), late, usual

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        reward, cost = self.paid if self.time >= self.late else (self.usual, 1.0)
        return np.zeros(1, np.float32), reward, False, False, {"cost": cost}


class Team:
    """Two PettingZoo agents; green is paid ``reward`` and sees ``seen``."""

    metadata = {"name": "team"}  # noqa: RUF012
    possible_agents = ("red", "green")

    def __init__(self, reward=1.0, seen=None):
        self.reward, self.agents = reward, []
        self.seen = np.zeros(1, np.float32) if seen is None else seen

    def observation_space(self, agent):
        return SEEN

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {}

    def step(self, actions):
        none = dict.fromkeys(self.agents, False)
        obs = {"red": np.zeros(1, np.float32), "green": self.seen}
        return obs, {"red": 1.0, "green": self.reward}, none, none, {}

    def close(self):
        pass


WRONG = [
    (1e39, r"the reward 1e\+39, beyond the 3.4e\+38 of float32"),
    (-(10**300), "beyond the"),
    (10**400, "Give real numbers"),
    (float("nan"), "the reward nan. Give finite"),
    (1 + 2j, "Give real numbers"),
    (np.complex64(1 + 2j), "Give real numbers"),
    ("3", "the reward '3'. Give real numbers"),
    (np.array([1.0, 1e39]), "beyond the"),
    (np.array([1.0, 1j]), "Give real numbers"),
    (np.array([3e38, 3e38]), "weighted sum of the reward .* is 6e.38, beyond"),
]


@pytest.mark.parametrize(("reward", "said"), WRONG)
@pytest.mark.parametrize("late", [1, 3])
def test_reward_that_float32_does_not_hold_is_refused_at_its_step(reward, said, late):
    make = lambda: Paying(reward, late=late, usual=np.ones(np.shape(reward)))  # noqa: E731
    with pytest.raises((Mistake, WorldFailed), match=f"Environment mine.*{said}"):  # noqa: PT012
        world = HostWorld(make, (0,), 1, workers=0, max_failures=1, name="mine")
        world.reset(fixed_keys())
        for _ in range(3):
            world.step(None, np.zeros((1, 1), int), fixed_keys())


@pytest.mark.parametrize("reward", [3e38, np.float32(-3e38), 7, True, constant_array(0.5), 0.1])
def test_reward_of_any_real_number_that_float32_holds_is_kept(reward):
    world = HostWorld(lambda: Paying(reward), (0,), 1, workers=0)
    world.reset(fixed_keys())
    step = world.step(None, np.zeros((1, 1), int), fixed_keys())[1]
    assert step.reward.item() == np.float32(reward)


@pytest.mark.parametrize("cost", [1e39, 1j, np.complex64(1j), np.array([1j, 0]), "3"])
def test_channel_that_is_no_real_number_of_float32_is_refused(cost):
    with pytest.raises(Mistake, match=r"Environment .*info\['cost'\] is .*(real numb|beyond)"):
        HostWorld(lambda: Paying(cost=cost), (0,), 1, workers=0, channels="cost")


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (1e39, "to agent green the reward 1e.39, beyond"),
        (1j, "to agent green the reward 1j. Give real numbers"),
        (np.ones(2), r"to agent green a reward of shape \(2,\). Give each agent one number"),
        (None, "to agent green the reward None. Give"),
    ],
)
def test_reward_of_an_agent_that_is_no_real_number_is_refused(reward, said):
    with pytest.raises(Mistake, match=f"Environment .*step\\(\\) returned {said}"):
        HostWorld(lambda: Team(reward), (0,), 1, workers=0)


def test_rewards_of_agents_may_be_arrays_of_one_number():
    world = HostWorld(lambda: Team(np.array([0.5])), (0,), 1, workers=0)
    world.reset(fixed_keys())
    assert world.step(None, np.zeros((1, 1, 2), int), fixed_keys())[1].reward.item() == 1.5


def test_complex_observation_of_an_agent_is_refused():
    with pytest.raises(Mistake, match="an agent observes complex128, but its observation_space s"):
        HostWorld(lambda: Team(seen=np.array([1j])), (0,), 1, workers=0)


@pytest.mark.parametrize("reward", [1e39, -1e300])
def test_vector_environment_that_pays_more_than_float32_holds_is_refused(reward):
    make = lambda count: SyncVectorEnv([lambda: Paying(reward, late=2)] * count)  # noqa: E731
    world = VectorWorld(make, (0,), 2, name="mine")
    world.reset(fixed_keys())
    world.step(None, np.zeros((1, 2), int), fixed_keys())
    with pytest.raises(Mistake, match=r"Environment mine: step\(\) returned the reward .*1e\+3"):
        world.step(None, np.zeros((1, 2), int), fixed_keys())
    world.close()


class ComplexTask:
    obs, action = SEEN, spaces.Discrete(2)

    def reset(self, key):
        return jnp.zeros(()), jnp.zeros(1)

    def step(self, state, action, key):
        return state, jnp.zeros(1), jnp.ones((), jnp.complex64), *[jnp.zeros((), bool)] * 2


def test_task_with_complex_rewards_or_channels_is_refused():
    with pytest.raises(Mistake, match="mine: step must return a real reward; got complex64"):
        check_task(ComplexTask(), "mine")
    with pytest.raises(Mistake, match="Channel 'cost' holds complex numbers"):
        check_reported({"cost": Channel()}, {"cost": jnp.ones((), jnp.complex64)})
