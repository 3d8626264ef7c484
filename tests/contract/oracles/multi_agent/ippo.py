"""Independent PPO (de Witt 2020): PPO for agents that are each taken for an environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import ppo
from oracles.pieces.leaves import Leaves

MOMENTS = ".obs_statistics.moments"


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, agent, ...)``; ``draws["order"]`` is each epoch's order
    of the rows of all agents.

    Return the metrics, and each row's mean advantage over the agents that were there.
    """
    length, envs, count = batch["own_reward"].shape
    rows = alone(batch, config)
    seen = wide(state, count) if config["identity"] else state
    metrics, samples = ppo.learn(seen, rows, config, draws)
    for name in state:  # what was learned, of the moments those of what is seen
        narrow = name.startswith(MOMENTS) and config["identity"]
        state[name] = back(seen, name, count) if narrow else seen[name]
    advantage = np.zeros((length, envs))
    for time, env in np.ndindex(length, envs):
        there = [samples["advantage"][time, env * count + agent] for agent in range(count)
                 if rows["mask"][time, env * count + agent]]  # fmt: skip
        advantage[time, env] = np.mean(there) if there else 0.0
    return metrics, {"advantage": advantage}


def alone(batch: Any, config: dict) -> dict[str, np.ndarray]:
    """Return the rollout of every agent of every environment, one beside the other."""
    found: dict[str, list[np.ndarray]] = {}
    _, envs, count = batch["own_reward"].shape
    for env in range(envs):
        for agent in range(count):
            here, there = (batch[name][:, env, agent] > 0 for name in ("alive", "next_alive"))
            one = {name: batch[name][:, env, agent] for name in ("action", "log_prob")}
            if "allowed" in batch:
                one["allowed"] = batch["allowed"][:, env, agent]
            paid = batch["own_reward"][:, env, agent]
            one["reward"] = paid if config["reward"] == "own" else batch["reward"][:, env]
            one["discount"] = np.where(there, batch["discount"][:, env], 0.0)
            one["last"] = batch["last"][:, env] | ~there
            one["mask"] = batch["mask"][:, env] & here
            for name in ("obs", "next_obs"):
                one[name] = batch[name][:, env, agent]
                if config["identity"]:
                    hot = np.zeros((len(one[name]), count))
                    hot[:, agent] = 1.0
                    one[name] = np.concatenate([hot, one[name]], -1)
            for name, x in one.items():
                found.setdefault(name, []).append(x)
    return {name: np.stack(each, 1) for name, each in found.items()}


def wide(state: Leaves, count: int) -> Leaves:
    """Return the state with moments of who it is that sees as well, by which nothing changes."""
    made = {name: x.copy() for name, x in state.items() if not name.startswith(MOMENTS)}
    ends = {"mean": np.zeros(count), "variance": np.full(count, 1.0 - 1e-8)}
    ends["remainder"] = np.zeros(count)
    for name, x in state.items():
        if name.startswith(MOMENTS):
            part = name.rpartition(".")[2]
            whole = np.concatenate([ends[part], x]) if part in ends else x.copy()
            made[f"{MOMENTS}[0].{part}"] = whole
    return Leaves(made.items())


def back(seen: Leaves, name: str, count: int) -> np.ndarray:
    """Return the moments of what is seen alone."""
    part = name.rpartition(".")[2]
    whole = seen[f"{MOMENTS}[0].{part}"]
    return whole if part == "count" else whole[count:]
