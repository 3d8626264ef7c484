"""Play an Atari game with an exported policy: Gymnasium's preprocessing and ONNX Runtime, without
Sterling and JAX.

    sterling train ppo Pong-v5 --steps 10_000_000 --out runs/pong
    sterling export runs/pong pong.onnx
    pip install "gymnasium[atari,other]" onnxruntime
    python examples/deploy/atari_loop.py pong.onnx ALE/Pong-v5

The preprocessing is the one that the policy was trained with (Mnih 2015): every action is repeated
in 4 frames, of which the last two are joined by their maximum, made grey and reduced to 84 x 84;
an observation consists of the last 4 of them, the newest last.
"""

import argparse

import gymnasium
import numpy as np
import onnxruntime
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

STACK = 4


def make_atari(game: str) -> gymnasium.Env:
    """The game with the preprocessing that Sterling's Atari worlds have."""
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.make(game, frameskip=1, repeat_action_probability=0.0)
    env = AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=84)
    return FrameStackObservation(env, STACK)


class OnnxPolicy:
    """An exported policy without a memory."""

    def __init__(self, path: str):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # for one observation at a time threads cost more
        self._session = onnxruntime.InferenceSession(path, options)

    def __call__(self, obs: np.ndarray) -> int:
        """Return the action for one observation."""
        (action,) = self._session.run(["action"], {"obs": np.asarray(obs)[None]})
        return int(action[0])


def play(policy: OnnxPolicy, env: gymnasium.Env, steps: int, seed: int = 0) -> list[float]:
    """Return the returns of the episodes that end within so many steps."""
    obs, _ = env.reset(seed=seed)
    returns, total = [], 0.0
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(policy(obs))
        total += float(reward)
        if terminated or truncated:
            returns.append(total)
            obs, total = env.reset()[0], 0.0
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policy", help="the file that sterling export wrote")
    parser.add_argument("game", help="such as ALE/Pong-v5")
    parser.add_argument("--steps", type=int, default=10_000, help="steps to play")
    chosen = parser.parse_args()
    found = play(OnnxPolicy(chosen.policy), make_atari(chosen.game), chosen.steps)
    print(f"{len(found)} episodes, returns {found}")
