"""Train on an environment of your own: anything that Gymnasium understands.

python examples/own_environment.py
"""

import gymnasium
import numpy as np

import sterling


class Corridor(gymnasium.Env):
    """Walk right to the end of a corridor; a step costs a little."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 8):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self._look(), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        there = self.place == self.length
        return self._look(), 1.0 if there else -0.05, there, False, {}

    def _look(self):
        return np.array([self.place / self.length], np.float32)


def make() -> gymnasium.Env:
    """A corridor that is cut after 50 steps."""
    return gymnasium.wrappers.TimeLimit(Corridor(), 50)


if __name__ == "__main__":
    run = sterling.train("ppo", make, steps=20_000, seeds=2, length=64)
    print(run.result["final"]["return"])
    print("action at the start:", run.policy(np.array([0.0], np.float32)))
