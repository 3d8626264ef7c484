"""Multi-agent PPO (Yu 2022): ippo's policies, and a critic that reads more than they do."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.multi_agent import ippo
from oracles.online import ppo
from oracles.pieces import normalisers
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron

MOMENTS = ".obs_statistics.moments"


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, agent, ...)``; ``draws["order"]`` is each epoch's order
    of the rows of all agents.

    Return the metrics, and each row's mean advantage over the agents that were there.
    """
    length, envs, count = batch["own_reward"].shape
    rows = ippo.alone(batch, config | {"identity": False})
    start = state.frozen()
    read = {name: features(start, batch, rows[name], name, config) for name in ("obs", "next_obs")}
    rewards = ppo.scaled_rewards(state, rows, config)
    shown = rows | {name: whole for name, (_, whole) in read.items()}
    bare = Leaves({name: x for name, x in start.items() if not name.startswith(MOMENTS)})
    advantage, worth = ppo.advantages(bare, shown, rewards, config)
    flat = {
        "own": read["obs"][0],
        "obs": read["obs"][1],
        "action": rows["action"],
        "old": rows["log_prob"],
        "advantage": advantage,
        "value": worth,
        "mask": rows["mask"],
    }
    if "allowed" in rows:
        flat["allowed"] = rows["allowed"]
    flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in flat.items()}
    metrics = descend(state, flat, config, draws)
    if config["normalise_obs"]:
        count_seen(state, batch, rows)
    state[".iteration"] = start[".iteration"] + 1.0
    found = np.zeros((length, envs))
    for time, env in np.ndindex(length, envs):
        columns = [env * count + agent for agent in range(count)]
        there = [advantage[time, at] for at in columns if rows["mask"][time, at]]
        found[time, env] = np.mean(there) if there else 0.0
    return metrics, {"advantage": found}


def descend(state: Leaves, rows: dict, config: dict, draws: dict) -> dict[str, float]:
    """Take the gradient steps of all epochs; return the metrics' means over them."""
    done = state[".iteration"] / state[".planned"] if config["anneal"] else 0.0
    rate, every, going = config["lr"] * (1.0 - done), [], True
    for order in draws["order"]:
        for first in range(0, len(order), config["minibatch"]):
            chosen = order[first : first + config["minibatch"]]
            chosen = chosen[rows["mask"][chosen]]
            part = {name: x[chosen] for name, x in rows.items()}
            metrics, going = ppo.update(state, part, config, rate, going, parts=terms)
            every.append(metrics)
    return {name: float(np.mean([metrics[name] for metrics in every])) for name in every[0]}


def terms(state: Leaves, rows: dict, config: dict) -> dict[str, float]:
    """Return the parts of PPO's loss: the policy of what an agent sees, the value of all."""
    if not len(rows["obs"]):
        return dict.fromkeys(ppo.TERMS, 0.0)
    outputs = {
        "policy": perceptron(state, ".nets.policy", rows["own"], config["activation"]),
        "value": perceptron(state, ".nets.value", rows["obs"], config["activation"])[:, 0],
    }
    return ppo.losses(state, rows, config, outputs)


def beside(batch: Any, name: str) -> list[np.ndarray]:
    """Return what only the critic reads, ``(time, env, ...)`` each: the state, or what every agent
    sees, nothing of those that are gone."""
    state = name.replace("obs", "state")
    if state in batch:
        return [batch[state]]
    alive, seen = batch[name.replace("obs", "alive")] > 0, batch[name]
    return [
        np.where(alive[:, :, agent, None], seen[:, :, agent], 0.0) for agent in range(seen.shape[2])
    ]


def features(
    state: Leaves, batch: Any, seen: np.ndarray, name: str, config: dict
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the policy reads and what the critic reads, ``(time, env and agent, ...)``:
    who it is, what it sees, and behind that what only the critic reads and who is there."""
    count, columns = batch["own_reward"].shape[2], np.arange(seen.shape[1])
    first = 1 if config["identity"] else 0
    own = in_units(state, seen, first)
    if config["identity"]:
        hot = np.broadcast_to(np.eye(count)[columns % count], (*seen.shape[:2], count))
        own = np.concatenate([hot, own], -1)
    more = [
        in_units(state, part, first + 1 + at)[:, columns // count]
        for at, part in enumerate(beside(batch, name))
    ]
    alive = batch[name.replace("obs", "alive")][:, columns // count].astype(float)
    return own, np.concatenate([own, *more, alive], -1)


def in_units(state: Leaves, x: np.ndarray, part: int) -> np.ndarray:
    """Return a part of what is seen less its mean, over its deviation, cut at 10; as it is where
    there are no moments of it."""
    if f"{MOMENTS}[{part}].mean" not in state:
        return x
    mean = normalisers.mean_of(state, f"{MOMENTS}[{part}]")
    variance = state[f"{MOMENTS}[{part}].variance"]
    return np.clip((x - mean) / np.sqrt(variance + 1e-8), -10.0, 10.0)


def count_seen(state: Leaves, batch: Any, rows: dict) -> None:
    """Count what was seen, once for every agent that was there. The first part of what is seen
    has moments of its own only where it is not who sees."""
    count, columns = batch["own_reward"].shape[2], np.arange(rows["mask"].shape[1])
    first = 0 if f"{MOMENTS}[0].mean" in state else 1
    parts = [rows["obs"], *(x[:, columns // count] for x in beside(batch, "obs"))]
    for at, part in enumerate(parts):
        normalisers.count(state, f"{MOMENTS}[{first + at}]", part[rows["mask"]])
