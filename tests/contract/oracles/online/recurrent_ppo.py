"""PPO with a gated recurrent unit (Cho 2014): one iteration, step after step of every rollout."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import ppo
from oracles.pieces import normalisers
from oracles.pieces.leaves import Leaves
from oracles.pieces.memory import after
from oracles.pieces.networks import perceptron


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, ...)``; ``draws["order"]`` is each epoch's order of envs.

    Return the metrics, averaged over the updates, and each row's advantage.
    """
    start = state.frozen()
    rewards = ppo.scaled_rewards(state, batch, config)
    rows = dict(batch)
    rows["obs"] = normalisers.seen(start, batch["obs"], ".obs_statistics", 10.0)
    rows["final"] = normalisers.seen(start, batch["next_obs"][-1], ".obs_statistics", 10.0)
    rows["value"], following = values(start, rows)
    rows["old"] = batch["log_prob"]
    rows["advantage"] = advantages(batch, rewards, rows["value"], following, config)
    done = start[".iteration"] / start[".planned"] if config["anneal"] else 0.0
    rate, every, going = config["lr"] * (1.0 - done), [], True
    together = config["minibatch"] // config["length"]
    for order in draws["order"]:
        for first in range(0, len(order), together):
            part = of_envs(rows, order[first : first + together])
            metrics, going = ppo.update(state, part, config, rate, going, parts=terms)
            every.append(metrics)
    if config["normalise_obs"]:
        normalisers.count(state, ".obs_statistics.moments[0]", batch["obs"][batch["mask"]])
    state[".iteration"] = start[".iteration"] + 1.0
    means = {name: float(np.mean([metrics[name] for metrics in every])) for name in every[0]}
    return means, {"advantage": rows["advantage"]}


def of_envs(rows: dict, envs: np.ndarray) -> dict:
    """Return what is known of some environments."""
    once = ("final", "start_memory", "start_action", "start_reward", "start_discount")
    return {
        name: x[envs] if name in (*once, "start_first") else x[:, envs] for name, x in rows.items()
    }


def memories(state: Leaves, rows: dict) -> np.ndarray:
    """Return h_t of every row, and of the observation after the last: (time + 1, env, width)."""
    hidden, found = rows["start_memory"], []
    for time in range(len(rows["obs"]) + 1):
        is_final = time == len(rows["obs"])
        before = [rows[f"start_{name}"] if time == 0 else rows[name][time - 1]
                  for name in ("action", "reward")]  # fmt: skip
        begins = np.zeros(hidden.shape[0], bool) if is_final else rows["begins"][time]
        obs = rows["final"] if is_final else rows["obs"][time]
        hidden = np.where(begins[:, None], 0.0, hidden)
        hidden = after(state, ".nets", hidden, (obs, *before), begins)
        found.append(hidden)
    return np.array(found)


def values(state: Leaves, rows: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return V of every row and of what follows it."""
    value = perceptron(state, ".nets.value", memories(state, rows), "tanh")[..., 0]
    return value[:-1], value[1:]


def advantages(
    batch: Any, rewards: np.ndarray, value: np.ndarray, following: np.ndarray, config: dict
) -> np.ndarray:
    """Return A_t = sum_k (gamma lambda)^k delta_{t+k}, backwards from every stretch's end."""
    gamma, lam = config["gamma"], config["gae_lambda"]
    delta = rewards + gamma * batch["discount"] * following - value
    found = delta.copy()
    for time in reversed(range(len(delta) - 1)):
        goes_on = batch["mask"][time + 1] & ~batch["last"][time]
        decay = gamma * lam * batch["discount"][time] * goes_on
        found[time] = delta[time] + decay * found[time + 1]
    return found


def terms(state: Leaves, rows: dict, config: dict) -> dict[str, float]:
    """Return the parts of PPO's loss, of the rows that count."""
    hidden, mask = memories(state, rows)[:-1], rows["mask"]
    outputs = {
        "policy": perceptron(state, ".nets.policy", hidden, "tanh")[mask],
        "value": perceptron(state, ".nets.value", hidden, "tanh")[..., 0][mask],
    }
    names = ("action", "old", "advantage", "value", "allowed")
    part = {name: rows[name][mask] for name in names if name in rows}
    return ppo.losses(state, part | {"obs": hidden[mask]}, config, outputs)
