"""Trains with Stable-Baselines3 or SBX, in a process of its own, and says how long things took.

    python peers.py '{"library": "sb3", "algorithm": "ppo", "environment": "CartPole-v1", ...}'

Runs under the peers' own Python. The last line printed is JSON: ``points`` ([steps, seconds],
one per PPO iteration, one per 50 SAC steps), ``return``, ``versions``.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

SAC_POINTS = 50  # steps between two notes of the time


def main() -> None:
    """Run a peer as asked, print what was measured as JSON."""
    request = json.loads(sys.argv[1])
    if "threads" in request:
        import torch

        torch.set_num_threads(request["threads"])
    train_it = learn_from_log if "rows" in request else train
    answer = matrix_torch(request) if "bound" in request else train_it(request)
    print(json.dumps(answer | {"versions": _versions()}))


def train(request: dict[str, Any]) -> dict[str, Any]:
    """One training run by the library's public interface, on the CPU."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    vector = SubprocVecEnv if request.get("vector") == "subprocess" else DummyVecEnv
    env = make_vec_env(request["environment"], request["envs"], vec_env_cls=vector)
    make = {"ppo": _ppo, "sac": _sac}[request["algorithm"]]
    model = make(request["library"], env, request["fields"])
    clock = _clock(SAC_POINTS if request["algorithm"] == "sac" else 1)
    model.learn(request["steps"], callback=clock)
    episodes = [episode["r"] for episode in model.ep_info_buffer]
    env.close()
    return {
        "points": clock.points,
        "steps": model.num_timesteps,
        "return": float(sum(episodes) / len(episodes)) if episodes else None,
    }


def learn_from_log(request: dict[str, Any]) -> dict[str, Any]:
    """Gradient updates by d3rlpy's public interface, on the CPU."""
    import d3rlpy
    import logs

    fields, columns = request["fields"], logs.columns(request["rows"])
    terminals, timeouts = columns.pop("terminals"), columns.pop("timeouts")
    log = d3rlpy.dataset.MDPDataset(**columns, terminals=terminals, timeouts=timeouts)
    rates = {"actor_learning_rate": fields["lr"], "critic_learning_rate": fields["lr"]}
    make = {"iql": d3rlpy.algos.IQLConfig, "td3bc": d3rlpy.algos.TD3PlusBCConfig}
    learner = make[request["algorithm"]](batch_size=fields["batch"], **rates).create(device="cpu:0")
    points: list[tuple[int, float]] = []

    def note(learner: Any, epoch: int, step: int) -> None:
        points.append((step, time.perf_counter()))

    learner.fit(
        log,
        n_steps=request["updates"],
        n_steps_per_epoch=100,
        callback=note,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    return {"points": [p for p in points if p[0] % 100 == 0], "steps": request["updates"]}


def _ppo(library: str, env: Any, fields: dict[str, Any]) -> Any:
    options = {
        "n_steps": fields["length"],
        "batch_size": fields["minibatch"],
        "n_epochs": fields["epochs"],
        "gamma": fields.get("gamma", 0.99),
        "gae_lambda": fields.get("gae_lambda", 0.95),
        "ent_coef": fields.get("entropy_coef", 0.0),
        "learning_rate": _rate(fields["lr"], fields["anneal"]),
        "clip_range": _rate(fields.get("clip", 0.2), fields["anneal"]),
    }
    if library == "sb3":
        from stable_baselines3 import PPO

        return PPO("MlpPolicy", env, device="cpu", **options)
    from sbx import PPO

    return PPO("MlpPolicy", env, **options)


def _sac(library: str, env: Any, fields: dict[str, Any]) -> Any:
    options = {
        "learning_rate": fields["lr"],
        "batch_size": fields["batch"],
        "buffer_size": fields["capacity"],
        "learning_starts": fields["warmup"],
        "train_freq": 1,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": [fields["width"]] * 2},
    }
    if library == "sb3":
        from stable_baselines3 import SAC

        return SAC("MlpPolicy", env, device="cpu", **options)
    from sbx import SAC

    return SAC("MlpPolicy", env, **options)


def _rate(start: float, anneal: bool) -> Any:
    """A constant, or the linear fall to 0 that the zoo writes as ``lin_``."""
    return (lambda left: left * start) if anneal else start


def _clock(every: int) -> Any:
    """A callback that notes steps and seconds when collecting starts, and at the end."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.points: list[tuple[int, float]] = []
            self.calls = 0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.calls % every == 0:
                self.points.append((self.num_timesteps, time.perf_counter()))
            self.calls += 1

        def _on_training_end(self) -> None:
            self.points.append((self.num_timesteps, time.perf_counter()))

    return Clock()


def matrix_torch(request: dict[str, Any]) -> dict[str, Any]:
    """Rate of 256x256 matrix products in single precision, each fed with the one before."""
    import torch

    size, chunk = 256, 2_000
    weight = torch.linalg.qr(torch.randn(size, size))[0].contiguous()  # keeps the numbers finite
    x, y = torch.randn(size, size), torch.empty(size, size)

    def multiply() -> None:
        nonlocal x, y
        for _ in range(chunk):
            torch.mm(x, weight, out=y)
            x, y = y, x

    multiply()
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < request["seconds"]:
        multiply()
        done += chunk
    return {"flops_per_second": done * 2 * size**3 / (time.perf_counter() - start)}


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("stable-baselines3", "sbx-rl", "d3rlpy", "torch", "jax", "jaxlib", "flax", "numpy")
    return {name: version(name) for name in (*names, "gymnasium", "mujoco")}


if __name__ == "__main__":
    main()
