"""A drone that must stay at a height, in gusts: a Gymnasium environment of one's own.

Observations are metres and metres per second, as an instrument would give them.
"""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

CEILING, STEPS = 100.0, 200


class Hover(gymnasium.Env):
    """One point for every step at the wanted height, less the further away; a crash ends it."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)  # height, speed, wanted
    action_space = spaces.Discrete(3)  # thrust: less, as much as the weight, more

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.height, self.wanted = self.np_random.uniform(20.0, 80.0, 2)
        self.speed, self.time = 0.0, 0
        return self.look(), {}

    def look(self):
        return np.array([self.height, self.speed, self.wanted], np.float32)

    def step(self, action):
        gust = self.np_random.normal(0.0, 0.5)
        self.speed = 0.95 * self.speed + (int(action) - 1) + gust
        self.height += 0.5 * self.speed
        self.time += 1
        crashed = not 0.0 < self.height < CEILING
        reward = 0.0 if crashed else max(0.0, 1.0 - abs(self.height - self.wanted) / 20.0)
        return self.look(), reward, crashed, self.time == STEPS, {}
