"""FQL's authors' own IQL, ReBRAC and FQL on one of our logs, to be put beside ours.

    git clone https://github.com/seohongpark/fql && git -C fql checkout 719d044
    pip install distrax ml_collections
    sterling data export runs/data/cube-single-play-singletask cube.npz --format npz
    python benchmarks/offline/authors.py --code fql --log cube.npz --only fql-cube-single-play

The settings are those of single_tasks.json, where our runs have theirs: layers, batch, penalties,
updates, seeds, episodes. Everything else is the authors': networks, losses, sampling, defaults.
Results go to benchmarks/offline/results/ogbench/authors/ after every seed, and a seed that is
there is not learned again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1]))

from benchmarks import evidence  # noqa: E402

RESULTS = HERE / "results" / "ogbench" / "authors"
TASKS = json.loads((HERE / "single_tasks.json").read_text())
OWN = {"expectile": "expectile", "beta": "alpha", "actor_penalty": "alpha_actor"}
OWN |= {"critic_penalty": "alpha_critic", "alpha": "alpha", "layer_norm": "layer_norm", "lr": "lr"}


def main() -> None:
    """Learn what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--code", type=Path, required=True, help="a clone of seohongpark/fql")
    parser.add_argument("--log", type=Path, required=True, help="our log as npz")
    parser.add_argument("--only", required=True, help="such as fql-cube-single-play")
    parser.add_argument("--seeds", type=int, nargs="*", default=range(TASKS["seeds"]))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # the simulator's, of displays and float32
    sys.path.insert(0, str(chosen.code.resolve()))
    algorithm, task = chosen.only.split("-", 1)
    evidence.begin()  # refuses a changed tree before hours are spent
    for seed in chosen.seeds:
        if str(seed) not in kept(chosen.only)["success"]:
            found = learn(algorithm, task, columns(chosen.log), seed)
            keep(chosen.only, chosen.code, chosen.log, seed, found)


def columns(path: Path) -> dict[str, np.ndarray]:
    """Our log's columns under the authors' names."""
    file = np.load(path)
    lengths, obs = file["lengths"], file["obs"]
    last = np.cumsum(lengths) - 1
    is_next = np.ones(len(obs), bool)
    is_next[np.concatenate([[0], np.cumsum(lengths + 1)[:-1]])] = False
    is_now = np.ones(len(obs), bool)
    is_now[np.cumsum(lengths + 1) - 1] = False
    terminals = np.zeros(len(file["action"]), np.float32)
    terminals[last] = 1.0
    return {
        "observations": obs[is_now],
        "next_observations": obs[is_next],
        "actions": np.clip(file["action"], -1 + 1e-5, 1 - 1e-5),  # as the authors load them
        "rewards": file["reward"],
        "masks": file["discount"],
        "terminals": terminals,
    }


def learn(algorithm: str, task: str, log: dict[str, np.ndarray], seed: int) -> dict[str, Any]:
    """One seed's success after all updates, as their main.py learns."""
    import ogbench  # noqa: F401  registers the worlds

    world = gymnasium.make(f"{task.removesuffix('-play')}-singletask-v0")
    module = importlib.import_module(f"agents.{algorithm}")
    datasets = importlib.import_module("utils.datasets")
    config, sizes = module.get_config(), TASKS["nets"]
    layers = (sizes["width"],) * sizes["depth"]
    config.update(actor_hidden_dims=layers, value_hidden_dims=layers, batch_size=sizes["batch"])
    ours = TASKS["algorithms"][algorithm] | TASKS["data"][task].get(algorithm, {})
    config.update({OWN[name]: value for name, value in ours.items()})
    np.random.seed(seed)
    data = datasets.Dataset.create(**log)
    data.return_next_actions = algorithm == "rebrac"
    example = data.sample(1)
    agents = [each for name, each in vars(module).items() if name.lower() == f"{algorithm}agent"]
    agent = agents[0].create(seed, example["observations"], example["actions"], config)
    start = time.monotonic()
    for i in range(1, TASKS["updates"] + 1):
        which = {"full_update": i % config["actor_freq"] == 0} if algorithm == "rebrac" else {}
        agent, _ = agent.update(data.sample(config["batch_size"]), **which)
    jax.block_until_ready(agent.network.params)
    seconds = time.monotonic() - start
    solved = list(episodes(world, agent, seed))
    return {"success": float(np.mean(solved)), "seconds": seconds}


def episodes(world: gymnasium.Env, agent: Any, seed: int) -> Iterator[bool]:
    """Whether the task is done in each of the judged episodes."""
    key = jax.random.key(seed)
    for episode in range(TASKS["episodes"]):
        obs, _ = world.reset(seed=1000 * seed + episode)
        while True:
            key, now = jax.random.split(key)
            action = agent.sample_actions(obs, seed=now, temperature=0.0)
            obs, _, terminated, truncated, info = world.step(np.clip(np.asarray(action), -1, 1))
            if terminated or truncated:
                yield bool(info["success"])
                break


def kept(name: str) -> dict[str, Any]:
    """What is known of a run already."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"success": {}, "seconds": {}}


def keep(name: str, code: Path, log: Path, seed: int, found: dict[str, Any]) -> None:
    """Add a seed to what is known of a run."""
    known = kept(name)
    for part, value in found.items():
        known[part][str(seed)] = value
    commit = ["git", "-C", str(code), "rev-parse", "HEAD"]
    known["commit"] = subprocess.check_output(commit, text=True).strip()
    known["hash"] = json.loads(str(np.load(log)["sterling.json"]))["hash"]
    known["updates"] = TASKS["updates"]
    known.pop("provenance", None)
    seeds = sorted(map(int, known["success"]))
    evidence.write(RESULTS / f"{name}.json", known, evidence.begin(), seeds)
    print(name, seed, found)


if __name__ == "__main__":
    main()
