"""How the models of this folder were made, with stable-baselines3 2.9.2 and torch 2.13.0:

    python make_models.py [NAME ...]

Writes one zip for each model (or for those that are named) and actions.json: observations, and what
``predict`` answered. Members of a zip that Sterling does not read are left out, and so are the
docstrings in its settings. Models with ``VecNormalize`` (made with torch 2.14.1, as those of
pictures) have its statistics beside them. The weights of models of pictures are drawn anew, so
that their actions differ.
"""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from small_worlds import OBS, boxes, choices, picture_boxes, picture_choices, some_pictures
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

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
    "ppo-normalised": (PPO, boxes, {**ROLLOUT, "batch_size": 8}, [8, 8]),
    "sac-normalised": (SAC, boxes, OFF_POLICY, [8, 8]),
    "ppo-pictures": (PPO, picture_boxes, {**ROLLOUT, "batch_size": 8}, []),
    "dqn-pictures": (DQN, picture_choices, {**OFF_POLICY, "target_update_interval": 100}, []),
}


def main(*names: str) -> None:
    """Train and write every model, or those that are named."""
    obs = np.random.default_rng(0).uniform(OBS.low, OBS.high, (8, 3)).astype(np.float32)
    torch.set_num_threads(1)
    path = HERE / "actions.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    answers, normal = known.get("actions", {}), known.get("normalised", {})
    values = known.get("values")
    for name in names or MODELS:
        model, statistics = train(name)
        model.save(HERE / f"{name}.zip")
        shrink(HERE / f"{name}.zip")
        seen = some_pictures() if name.endswith("pictures") else obs
        if statistics is not None:
            statistics.save(HERE / f"{name}.pkl")
            seen = statistics.normalize_obs(obs)
            normal[name] = seen.tolist()
        answers[name] = model.predict(seen, deterministic=True)[0].tolist()
        if name == "dqn-pictures":
            values = model.q_net(model.policy.obs_to_tensor(seen)[0]).tolist()
    everything = {"obs": obs.tolist(), "actions": answers, "normalised": normal, "values": values}
    path.write_text(json.dumps(everything))


def train(name):
    """Return a trained model, and its VecNormalize or None."""
    kind, world, how, sizes = MODELS[name]
    policy, statistics = {"net_arch": sizes}, None
    if name == "relu":
        policy["activation_fn"] = torch.nn.ReLU
    if name.endswith("pictures"):
        policy["features_extractor_kwargs"] = {"features_dim": 6}
    if name.endswith("normalised"):
        env = statistics = VecNormalize(DummyVecEnv([world]), epsilon=1e-3, clip_obs=10.0)
    else:
        env = world()
    words = "CnnPolicy" if name.endswith("pictures") else "MlpPolicy"
    model = kind(words, env, seed=0, policy_kwargs=policy, device="cpu", **how)
    model.learn(40 if name.endswith("pictures") else 200)
    if name.endswith("pictures"):
        redraw(model.policy)
    return model, statistics


def redraw(policy):
    """Replace all weights by others of few bits, with which actions differ and a zip is small."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for array in policy.parameters():
            fan = max(array[0].numel(), 1) if array.ndim > 1 else 100
            drawn = torch.randn(array.shape, generator=draw) * (2.0 / fan) ** 0.5
            array.copy_(torch.round(drawn * 64) / 64)


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
    main(*sys.argv[1:])
