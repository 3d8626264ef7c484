"""Environments with odd spaces. Their worker processes import no JAX."""

import gymnasium
import numpy as np
from gymnasium import spaces


class OddForms(gymnasium.Env):
    """Dict observations with a mask, several choices counted from other numbers than 0."""

    observation_space = spaces.Dict(
        place=spaces.Box(-2.0, 2.0, (2, 2), np.float64),
        kind=spaces.Discrete(3),
        parts=spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])]),
        action_mask=spaces.MultiBinary(5),
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def _seen(self):
        found = self.observation_space.sample()
        found["action_mask"] = np.array([1, 1, 0, 0, 1], np.int8)
        return found

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._seen(), {}

    def step(self, action):
        return self._seen(), 0.0, bool(self.np_random.random() < 0.05), False, {}


class WideTorques(gymnasium.Env):
    """Actions of float64 with bounds that float32 does not hold exactly."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Box(np.array([-0.1, 0.7]), np.array([0.3, 1.9]), dtype=np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=3), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.np_random.normal(size=3), float(action.sum()), False, False, {}


class OddNames(OddForms):
    """Entries whose names hold separators, and are one in C."""

    observation_space = spaces.Dict({
        name: spaces.Box(-2.0, 2.0, (2,), np.float32)
        for name in ("arm/pos", "a.b", "a_b", "a~1b", "~", "é")
    })  # fmt: skip
    action_space = spaces.Discrete(3)

    def _seen(self):
        return self.observation_space.sample()
