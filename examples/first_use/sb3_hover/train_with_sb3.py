"""How model.zip and vec_normalize.pkl were made, with stable-baselines3 2.9.2 and torch 2.14.1:

    python examples/first_use/sb3_hover/train_with_sb3.py

This is a usual program for Stable-Baselines3. Sterling needs neither it nor PyTorch. (At the end
the optimiser, two thirds of the file, is left out of model.zip.)
"""

import sys
import zipfile
from pathlib import Path

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

if __name__ == "__main__":
    from hover import Hover

    torch.set_num_threads(1)
    envs = VecNormalize(VecMonitor(DummyVecEnv([Hover] * 8)))
    model = PPO("MlpPolicy", envs, n_steps=128, seed=0, device="cpu")
    model.learn(10_000)
    model.save(HERE / "model.zip", exclude=["ep_info_buffer", "rollout_buffer", "_last_obs"])
    envs.save(HERE / "vec_normalize.pkl")
    envs.training = envs.norm_reward = False
    print(evaluate_policy(model, envs, n_eval_episodes=100))
    with zipfile.ZipFile(HERE / "model.zip") as archive:
        kept = {name: archive.read(name) for name in archive.namelist() if "optimizer" not in name}
    with zipfile.ZipFile(HERE / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
