"""A Gymnasium environment with a camera and numbers, a callback, and an early stop.

    python examples/first_use/dict_world.py [FOLDER] [STEPS]

A target appears somewhere; the camera shows it and the agent, and the agent must step onto it.
"""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
from gymnasium import spaces

import sterling

SIDE, LIMIT = 6, 24
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])


class Search(gymnasium.Env):
    """Reach the target: -0.1 for every step, 1 at the end."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8),
            "battery": spaces.Box(0.0, 1.0, (1,), np.float32),
        }
    )
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        places = self.np_random.choice(SIDE * SIDE, 2, replace=False)
        self.agent, self.target = (np.array(divmod(place, SIDE)) for place in places)
        self.time = 0
        return self.look(), {}

    def look(self):
        camera = np.zeros((SIDE, SIDE, 3), np.uint8)
        camera[tuple(self.agent)] = (0, 0, 255)
        camera[tuple(self.target)] = (255, 0, 0)
        return {"camera": camera, "battery": np.float32([1 - self.time / LIMIT])}

    def step(self, action):
        self.agent = np.clip(self.agent + MOVES[action], 0, SIDE - 1)
        self.time += 1
        found = bool((self.agent == self.target).all())
        return self.look(), 1.0 if found else -0.1, found, self.time == LIMIT, {}


class Tell:
    """A callback: it logs a number of its own, and stops the run when that is good enough."""

    def on_evaluation(self, event):
        shares = [float(score is not None and score > 0) for score in event.scores["return"]]
        event.log({"search/solved": shares})
        print(f"step {event.step:,}: return {np.round(event.scores['return'], 2)}")
        if all(shares) and min(event.scores["return"]) > 0.5:
            event.stop("every seed's mean return is above 0.5")


def main(folder: str = "runs/search", steps: int = 200_000) -> sterling.TrainedRun:
    """Train, and act with the result in the environment itself."""
    run = sterling.train(
        *("ppo", Search),
        steps=steps,
        seeds=2,
        envs=16,
        length=64,
        lr=1e-3,
        width=64,
        env_options={"workers": 0},
        evaluate_every=max(steps // 10, 2_048),
        keep="best",
        callbacks=[Tell()],
        out=folder,
    )
    print(run)
    print("stopped:", run.result.get("stopped", {}).get("reason", "at the end"))
    env = Search()
    obs, _ = env.reset(seed=0)
    print("first action:", run.policy(obs))
    return run


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
