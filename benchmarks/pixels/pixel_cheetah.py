"""Gymnasium's HalfCheetah-v5, seen as pictures of 84 x 84 in place of its 17 numbers.

    MUJOCO_GL=egl sterling train drq-v2 benchmarks/pixels/pixel_cheetah.py:make \
        --steps 500_000 --env stack=3

Needs a GPU, or EGL in software, to render. Every action is repeated twice, as in the paper of
DrQ-v2 (Yarats 2021); its cheetah is DMC's, with other rewards and lengths, so scores of this one
cannot be compared with the paper's.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

NAME, SIDE, REPEAT = "HalfCheetah-v5", 84, 2


class Pixels(gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """Observations are pictures ``(3, 84, 84)`` of bytes; rewards are sums over repeats."""

    def __init__(self, env: gymnasium.Env[np.ndarray, np.ndarray]):
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8)

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        _, info = self.env.reset(**options)
        return self._picture(), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply an action ``REPEAT`` times, or until the episode ends."""
        total = 0.0
        for _ in range(REPEAT):
            _, reward, ended, cut, info = self.env.step(action)
            total += float(reward)
            if ended or cut:
                break
        return self._picture(), total, ended, cut, info

    def _picture(self) -> np.ndarray:
        return np.asarray(self.env.render()).transpose(2, 0, 1).copy()


def make() -> Pixels:
    """Return the environment."""
    return Pixels(gymnasium.make(NAME, render_mode="rgb_array", width=SIDE, height=SIDE))
