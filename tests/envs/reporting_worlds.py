"""Environments that report numbers. Their worker processes import no JAX."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Costly(gymnasium.Env):
    """Three steps; info says a cost in the first two, and two terms of the reward."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2)

    def __init__(self, objectives=False):
        self.objectives = objectives

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        info = (
            {"cost": self.time, "terms": [1.0, -self.time]} if self.time < 3 else {"terms": [0, 9]}
        )
        reward = np.array([1.0, 10.0 * self.time]) if self.objectives else 1.0
        return np.zeros(2, np.float32), reward, self.time == 3, False, info


class Terms(Costly):
    """Reports the terms of its reward as a dict, and entries whose names have other characters."""

    def __init__(self, change=None):
        super().__init__()
        self.change = change

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        terms = {"forward": 1.0 * self.time, "ctrl": {"x": -0.5, "y-z": 0.25}}
        if self.change is not None and self.time == 2:
            terms = {**terms, **self.change} if self.change else {"forward": 5.0}
        info = {"reward_terms": terms, "reward/alive": 2.0, "a.b": 3.0, "a": {"b": 9.0}}
        return obs, reward, terminated, truncated, info


class Loud(Costly):
    """Its second number leaves the box after the first step, or before."""

    def __init__(self, first=0.0, then=0.0):
        super().__init__()
        self.first, self.then = first, then

    def reset(self, *, seed=None, options=None):
        return np.float32([0.0, self.first]), super().reset(seed=seed)[1]

    def step(self, action):
        return np.float32([0.0, self.then]), *super().step(action)[1:]
