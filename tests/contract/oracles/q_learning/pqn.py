"""PQN (Gallici 2025, algorithm 1): Peng's Q(lambda) on a rollout, then epochs of minibatches."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online.dqn import epsilon
from oracles.pieces import adam, radam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, ...)``; ``draws["order"]`` is each epoch's order of rows.

    Return the metrics, averaged over the updates, and each row's G - Q(s, a).
    """
    target, shape = returns(state, batch, config), batch["mask"].shape
    before = np.take_along_axis(values(state, batch["obs"]), batch["action"][..., None], -1)[..., 0]
    first = {"policy/epsilon": epsilon(state, config)}
    rows = {"obs": batch["obs"], "action": batch["action"], "target": target, "mask": batch["mask"]}
    rows = {name: x.reshape(-1, *x.shape[2:]) for name, x in rows.items()}
    every = []
    for order in draws["order"]:
        for start in range(0, len(order), config["minibatch"]):
            chosen = order[start : start + config["minibatch"]]
            chosen = chosen[rows["mask"][chosen]]
            every.append(update(state, {name: x[chosen] for name, x in rows.items()}, config))
    means = {name: float(np.mean([metrics[name] for metrics in every])) for name in every[0]}
    return means | first, {"td_error": (target - before).reshape(shape)}


def values(state: Leaves, obs: np.ndarray) -> np.ndarray:
    """Return Q of every action."""
    return perceptron(state, ".net.advantage", obs)


def returns(state: Leaves, batch: Any, config: dict) -> np.ndarray:
    """Return the average of all n-step returns, the n-th with weight (1 - lambda) lambda^(n-1) and
    the last with the remaining weight (Sutton & Barto 2018, eq. 12.3), of every row summed forward
    to the end of its stretch of experience."""
    q = values(state, batch["next_obs"])
    if "allowed" in batch:  # in a rollout a successor's choices stand in the next row
        following = np.concatenate([batch["allowed"][1:], batch["next_allowed"][-1:]])
        q = np.where(following, q, -np.inf)
    best, lam = q.max(-1), config["q_lambda"]
    length, envs = best.shape
    found = np.zeros_like(best)
    for time in range(length):
        for env in range(envs):
            so_far, decay, weight = 0.0, 1.0, 1.0
            for ahead in range(time, length):
                so_far += decay * batch["reward"][ahead, env]
                decay *= config["gamma"] * batch["discount"][ahead, env]
                n_step = so_far + decay * best[ahead, env]
                ends = batch["last"][ahead, env] or ahead + 1 == length
                if ends or not batch["mask"][ahead + 1, env]:
                    found[time, env] += weight * n_step
                    break
                found[time, env] += weight * (1.0 - lam) * n_step
                weight *= lam
    return found


def update(state: Leaves, rows: dict, config: dict) -> dict[str, float]:
    """Take one gradient step on rows that all count; none have a loss of 0."""
    picked, count = (np.arange(len(rows["action"])), rows["action"]), max(len(rows["action"]), 1)

    def loss() -> float:
        error = rows["target"] - values(state, rows["obs"])[picked]
        return 0.5 * float(np.sum(error**2)) / count

    slope = gradient(loss, state, ".net")
    metrics = {
        "loss/value": loss(),
        "value/q": float(np.sum(values(state, rows["obs"])[picked])) / count,
        "loss/grad_norm": adam.norm(slope),
    }
    done = state[".updates"] / state[".planned"] if config["anneal"] else 0.0
    slope = adam.clipped(slope, config["max_grad_norm"])
    radam.descend(state, ".net", ".optimiser", slope, config["lr"] * (1.0 - done))
    state[".updates"] = state[".updates"] + 1
    return metrics
