"""Two small environments in which the models of this folder were trained, without Sterling."""

import gymnasium
import numpy as np
from gymnasium import spaces

OBS = spaces.Box(-4.0, 4.0, (3,), np.float32)
PICTURE = spaces.Box(0, 255, (44, 52, 2), np.uint8)


class Small(gymnasium.Env):
    """Random observations; the reward is higher the nearer the action is to the first of them."""

    def __init__(self, actions):
        self.observation_space, self.action_space = OBS, actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observation(), {}

    def step(self, action):
        self.time += 1
        reward = -float(np.mean(np.abs(np.asarray(action, np.float64) - self.seen[0])))
        return self._observation(), reward, False, self.time >= 10, {}

    def _observation(self):
        self.seen = self.np_random.uniform(-4.0, 4.0, 3).astype(np.float32)
        return self.seen


class Pictures(Small):
    """Random pictures that are not square; the reward is higher the darker the first pixel."""

    def __init__(self, actions):
        self.observation_space, self.action_space = PICTURE, actions

    def step(self, action):
        self.time += 1
        return self._observation(), -float(self.seen[0, 0, 0]), False, self.time >= 10, {}

    def _observation(self):
        self.seen = self.np_random.integers(0, 256, PICTURE.shape, dtype=np.uint8)
        return self.seen


def boxes():
    """Two actions, whose bounds are not symmetric."""
    return Small(spaces.Box(np.float32([-1.0, 0.0]), np.float32([3.0, 0.5])))


def choices():
    """Three choices."""
    return Small(spaces.Discrete(3))


def picture_boxes():
    """Pictures, and two actions whose bounds are not symmetric."""
    return Pictures(spaces.Box(np.float32([-1.0, 0.0]), np.float32([3.0, 0.5])))


def picture_choices():
    """Pictures, and three choices."""
    return Pictures(spaces.Discrete(3))


def some_pictures():
    """Return pictures of stripes, other ones in each, ``(8, 44, 52, 2)``."""
    number, row, column, channel = np.ogrid[:8, :44, :52, :2]
    return ((row * number + column * (7 - number) + 91 * channel * number) % 256).astype(np.uint8)
