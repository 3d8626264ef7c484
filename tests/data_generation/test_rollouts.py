"""Returns that a dataset's agents are judged by."""

import gymnasium
import numpy as np
import pytest

from sterling import envs
from sterling.data_generation import policy_rollouts


class Counting(gymnasium.Env):
    """Reward 1 a step; episodes end after ``length`` steps, or never."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length):
        self.length, self.time = length, 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), 1.0, self.time == self.length, False, {}


@pytest.mark.parametrize(
    ("length", "limit", "wanted"),
    [
        (300, 400, [300.0] * 9),  # nine episodes take far more steps than one may
        (0, 400, [1024.0] * 9),  # of episodes that never end the first draw is long enough
    ],
)
def test_episode_returns_step_limit_is_per_episode(length, limit, wanted):
    world = envs.make(lambda: Counting(length), (0,), 2, purpose="evaluate", workers=0)
    try:
        found = policy_rollouts.episode_returns(
            world, policy_rollouts.RandomActor(world), len(wanted), 0, limit
        )
    finally:
        world.close()
    assert found.tolist() == [wanted, wanted]
