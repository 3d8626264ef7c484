"""How the models of this folder were made, with stable-baselines3 2.9.2 and torch 2.13.0:

    python make_models.py

Writes one zip for each model and actions.json: observations, and what ``predict`` answered. Members
of a zip that Sterling does not read are left out, and so are the docstrings in its settings.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import torch
from small_worlds import OBS, boxes, choices
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3

HERE = Path(__file__).parent
OFF_POLICY = {"learning_starts": 20, "buffer_size": 100, "batch_size": 8}
ROLLOUT = {"n_steps": 16}
READ = ("data", "policy.pth", "pytorch_variables.pth")
SETTINGS = ("policy_kwargs", "use_sde", "observation_space", "action_space", "seed")
MODELS = {
    "ppo": (PPO, boxes, {**ROLLOUT, "batch_size": 8}, [8, 8]),
    "ppo-choices": (PPO, choices, {**ROLLOUT, "batch_size": 8}, [8, 8]),
    "a2c": (A2C, boxes, ROLLOUT, [8, 8]),
    "sac": (SAC, boxes, OFF_POLICY, [8, 8]),
    "td3": (TD3, boxes, OFF_POLICY, [8, 8]),
    "dqn": (DQN, choices, OFF_POLICY, [8, 8]),
    "uneven": (SAC, boxes, OFF_POLICY, [8, 6]),
    "relu": (PPO, boxes, {**ROLLOUT, "batch_size": 8}, [8, 8]),
}


def main() -> None:
    """Train and write every model."""
    obs = np.random.default_rng(0).uniform(OBS.low, OBS.high, (8, 3)).astype(np.float32)
    answers = {}
    for name, (kind, world, how, sizes) in MODELS.items():
        policy = {"net_arch": sizes}
        if name == "relu":
            policy["activation_fn"] = torch.nn.ReLU
        model = kind("MlpPolicy", world(), seed=0, policy_kwargs=policy, device="cpu", **how)
        model.learn(200)
        model.save(HERE / f"{name}.zip")
        shrink(HERE / f"{name}.zip")
        answers[name] = model.predict(obs, deterministic=True)[0].tolist()
    (HERE / "actions.json").write_text(json.dumps({"obs": obs.tolist(), "actions": answers}))


def shrink(path: Path) -> None:
    """Write a model's zip again with less inside."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in READ}
    settings = json.loads(members["data"])
    settings = {name: settings[name] for name in SETTINGS if name in settings}
    members["data"] = json.dumps(settings).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


if __name__ == "__main__":
    main()
