"""PPO-Lagrangian (Ray 2019): PPO whose advantage has the cost's in it, and a multiplier."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import ppo
from oracles.pieces import normalisers
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, ...)``; ``draws["order"]`` is each epoch's order of rows.

    Return the metrics, averaged over the updates, and each row's advantage.
    """
    start = state.frozen()
    rewards = ppo.scaled_rewards(state, batch, config)
    multiplier = ascended(float(start[".multiplier"]), batch, config)
    state[".multiplier"] = np.array(multiplier)
    gained, value = ppo.advantages(start, batch, rewards, config)
    spent, cost_value = ppo.advantages(costs(start), batch, batch["cost"], config)
    advantage = (gained - multiplier * spent) / (1.0 + multiplier)
    rows = {
        "obs": normalisers.seen(start, batch["obs"], ".obs_statistics", 10.0),
        "action": batch["action"],
        "old": batch["log_prob"],
        "advantage": advantage,
        "value": value,
        "target": gained + value,
        "cost_target": spent + cost_value,
        "mask": batch["mask"],
    }
    if "allowed" in batch:
        rows["allowed"] = batch["allowed"]
    rows = {name: x.reshape(-1, *x.shape[2:]) for name, x in rows.items()}
    every = epochs(state, rows, config, draws["order"])
    if config["normalise_obs"]:
        normalisers.count(state, ".obs_statistics.moments[0]", batch["obs"][batch["mask"]])
    state[".iteration"] = start[".iteration"] + 1.0
    means = {name: float(np.mean([metrics[name] for metrics in every])) for name in every[0]}
    means["constraint/multiplier"] = multiplier
    return means, {"advantage": advantage}


def ascended(multiplier: float, batch: Any, config: dict) -> float:
    """Return m + eta (C - d), not below 0; C is what finished episodes cost on average."""
    ended = batch["last"] & batch["mask"]
    if not ended.any():
        return multiplier
    over = batch["episode/cost"][ended].mean() - config["cost_limit"]
    return max(multiplier + config["multiplier_lr"] * over, 0.0)


def costs(state: Leaves) -> Leaves:
    """Return the state with the cost's value network in the place of the value network."""
    names = {name.replace(".nets.value.", ".nets.cost."): name for name in state
             if name.startswith(".nets.value.")}  # fmt: skip
    return Leaves({**state, **{there: state[here] for here, there in names.items()}}.items())


def epochs(state: Leaves, rows: dict, config: dict, orders: Any) -> list[dict[str, float]]:
    """Return the metrics of every update."""
    done = state[".iteration"] / state[".planned"] if config["anneal"] else 0.0
    rate, every, going = config["lr"] * (1.0 - done), [], True
    for order in orders:
        for first in range(0, len(order), config["minibatch"]):
            chosen = order[first : first + config["minibatch"]]
            chosen = chosen[rows["mask"][chosen]]
            part = {name: x[chosen] for name, x in rows.items()}
            metrics, going = ppo.update(state, part, config, rate, going, parts=terms)
            every.append(metrics)
    return every


def terms(state: Leaves, rows: dict, config: dict) -> dict[str, float]:
    """Return the parts of the loss; the value's is that of rewards and of costs together."""
    if not len(rows["obs"]):
        return dict.fromkeys((*ppo.TERMS, "loss/cost"), 0.0)
    outputs = {
        name: perceptron(state, f".nets.{name}", rows["obs"], config["activation"])
        for name in ("policy", "value", "cost")
    }
    outputs = {name: x if name == "policy" else x[:, 0] for name, x in outputs.items()}
    found = ppo.losses(state, rows, config, outputs)
    found["loss/cost"] = 0.5 * float(np.mean((outputs["cost"] - rows["cost_target"]) ** 2))
    return found
