"""A2C (Mnih 2016, algorithm S3, of workers in step): one update on one rollout."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import ppo
from oracles.pieces import adam, normalisers, rmsprop
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, ...)``; return the metrics and each row's advantage."""
    start, rows, advantage = rollout(state, batch, config)
    metrics = terms(state, rows, config)

    def loss() -> float:
        found = terms(state, rows, config)
        weighted = config["value_coef"] * found["loss/value"]
        return found["loss/policy"] + weighted - config["entropy_coef"] * found["policy/entropy"]

    slope = gradient(loss, state, ".nets")
    metrics["loss/grad_norm"] = adam.norm(slope)
    slope = adam.clipped(slope, config["max_grad_norm"])
    done = start[".iteration"] / start[".planned"] if config["anneal"] else 0.0
    rate = config["lr"] * (1.0 - done)
    decay = config["decay"]
    rmsprop.descend(state, ".nets", ".optimiser", slope, rate=rate, decay=decay)
    finish(state, batch, config)
    return metrics, {"advantage": advantage}


def rollout(state: Leaves, batch: Any, config: dict) -> tuple[Leaves, dict, np.ndarray]:
    """Return the state before, the rows that count, one after the other, and the advantages."""
    start = state.frozen()
    rewards, shape = ppo.scaled_rewards(state, batch, config), batch["mask"].shape
    advantage, value = ppo.advantages(start, batch, rewards, config)
    obs = normalisers.seen(start, batch["obs"], ".obs_statistics", 10.0)
    rows = {"obs": obs, "advantage": advantage, "value": value, "old": batch["log_prob"]}
    rows |= {name: batch[name] for name in ("action", "allowed") if name in batch}
    rows = {name: x[batch["mask"]] for name, x in rows.items()}
    rows["target"] = rows["advantage"] + rows["value"]
    return start, rows, advantage.reshape(shape)


def finish(state: Leaves, batch: Any, config: dict) -> None:
    """Count the rollout, and its observations."""
    if config["normalise_obs"]:
        normalisers.count(state, ".obs_statistics.moments[0]", batch["obs"][batch["mask"]])
    state[".iteration"] = state[".iteration"] + 1.0


def terms(state: Leaves, rows: dict, config: dict) -> dict[str, float]:
    """Return the parts of the loss: the slope of log pi times A, the error, the entropy."""
    advantage = rows["advantage"]
    if config["normalise_advantage"]:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    outputs = perceptron(state, ".nets.policy", rows["obs"], config["activation"])
    log_prob, entropy = ppo.policy(state, rows, outputs)
    value = perceptron(state, ".nets.value", rows["obs"], config["activation"])[:, 0]
    return {
        "loss/policy": -float(np.mean(log_prob * advantage)),
        "loss/value": float(np.mean((value - rows["target"]) ** 2)),
        "policy/entropy": float(np.mean(entropy)),
    }
