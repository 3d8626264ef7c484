"""PPO (Schulman 2017), one iteration: advantages, epochs of minibatches, normalisers."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam, normalisers
from oracles.pieces.distributions import (
    entropy_of_choices,
    log_softmax,
    normal_entropy,
    normal_log_prob,
    of_choice,
)
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient

TERMS = ("loss/policy", "loss/value", "policy/entropy", "policy/kl", "policy/clipped")


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, ...)``; ``draws["order"]`` is each epoch's order of rows.

    Return the metrics, averaged over the updates, and each row's advantage.
    """
    start = state.frozen()
    rewards = scaled_rewards(state, batch, config)
    advantage, value = advantages(start, batch, rewards, config)
    rows = {
        "obs": normalisers.seen(start, batch["obs"], ".obs_statistics", 10.0),
        "action": batch["action"],
        "old": batch["log_prob"],
        "advantage": advantage,
        "value": value,
        "mask": batch["mask"],
    }
    if "allowed" in batch:
        rows["allowed"] = batch["allowed"]
    shape = batch["mask"].shape
    rows = {name: x.reshape(-1, *x.shape[2:]) for name, x in rows.items()}
    done = start[".iteration"] / start[".planned"] if config["anneal"] else 0.0
    rate, every, going = config["lr"] * (1.0 - done), [], True
    for order in draws["order"]:
        for first in range(0, len(order), config["minibatch"]):
            chosen = order[first : first + config["minibatch"]]
            chosen = chosen[rows["mask"][chosen]]
            part = {name: x[chosen] for name, x in rows.items()}
            metrics, going = update(state, part, config, rate, going)
            every.append(metrics)
    if config["normalise_obs"]:
        normalisers.count(state, ".obs_statistics.moments[0]", batch["obs"][batch["mask"]])
    state[".iteration"] = start[".iteration"] + 1.0
    means = {name: float(np.mean([metrics[name] for metrics in every])) for name in every[0]}
    return means, {"advantage": advantage.reshape(shape)}


def scaled_rewards(state: Leaves, batch: Any, config: dict) -> np.ndarray:
    """Return rewards over the deviation of the discounted return, which this rollout's returns are
    counted into first (Engstrom 2020, appendix A)."""
    if not config["normalise_reward"]:
        return batch["reward"]
    running, returns = state[".reward_statistics.running"].copy(), []
    for reward, last, mask in zip(batch["reward"], batch["last"], batch["mask"], strict=True):
        running = np.where(mask, config["gamma"] * running + reward, 0.0)
        returns.append(running)
        running = np.where(last, 0.0, running)
    state[".reward_statistics.running"] = running
    normalisers.count(state, ".reward_statistics.moments", np.array(returns)[batch["mask"]])
    deviation = np.sqrt(state[".reward_statistics.moments.variance"] + 1e-8)
    return np.clip(batch["reward"] / deviation, -10.0, 10.0)


def advantages(
    state: Leaves, batch: Any, rewards: np.ndarray, config: dict
) -> tuple[np.ndarray, np.ndarray]:
    """Return A and V: A_t = sum_k (gamma lambda)^k delta_{t+k} (Schulman 2016, eq. 16), summed
    forward from every row to the end of its stretch of experience."""
    value, following = (
        perceptron(
            state,
            ".nets.value",
            normalisers.seen(state, batch[name], ".obs_statistics", 10.0),
            config["activation"],
        )[..., 0]
        for name in ("obs", "next_obs")
    )
    gamma, lam = config["gamma"], config["gae_lambda"]
    delta = rewards + gamma * batch["discount"] * following - value
    length, envs = delta.shape
    found = np.zeros_like(delta)
    for time in range(length):
        for env in range(envs):
            weight = 1.0
            for ahead in range(time, length):
                found[time, env] += weight * delta[ahead, env]
                if batch["last"][ahead, env] or ahead + 1 == length:
                    break
                if not batch["mask"][ahead + 1, env]:
                    break
                weight *= gamma * lam * batch["discount"][ahead, env]
    return found, value


def update(
    state: Leaves, rows: dict, config: dict, rate: float, going: bool, *, parts: Any = None
) -> tuple[dict[str, float], bool]:
    """Take one gradient step on rows that all count, unless the policy has moved too far.

    ``parts`` gives the parts of the loss in place of ``terms``, perhaps that of costs too.
    """
    of_loss = parts or terms
    metrics = of_loss(state, rows, config)

    def loss() -> float:
        found = of_loss(state, rows, config)
        return (
            found["loss/policy"]
            + config["value_coef"] * (found["loss/value"] + found.get("loss/cost", 0.0))
            - config["entropy_coef"] * found["policy/entropy"]
        )

    slope = gradient(loss, state, ".nets")
    metrics["loss/grad_norm"] = adam.norm(slope)
    if config["target_kl"] is not None and metrics["policy/kl"] > 1.5 * config["target_kl"]:
        going = False
    if going:
        slope = adam.clipped(slope, config["max_grad_norm"])
        adam.descend(state, ".nets", ".optimiser", slope, rate, epsilon=1e-5)
    return metrics, going


def terms(state: Leaves, rows: dict, config: dict) -> dict[str, float]:
    """Return the parts of the loss (Schulman 2017, eqs. 7 and 9), and what is watched."""
    if not len(rows["obs"]):  # a minibatch of rows that do not count has a loss of 0
        return dict.fromkeys(TERMS, 0.0)
    outputs = {
        "policy": perceptron(state, ".nets.policy", rows["obs"], config["activation"]),
        "value": perceptron(state, ".nets.value", rows["obs"], config["activation"])[:, 0],
    }
    return losses(state, rows, config, outputs)


def losses(state: Leaves, rows: dict, config: dict, outputs: dict) -> dict[str, float]:
    """Return the same, given what the networks put out for the rows."""
    clip, advantage = config["clip"], rows["advantage"]
    if config["normalise_advantage"]:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_prob, entropy = policy(state, rows, outputs["policy"])
    value = outputs["value"]
    target = rows["target"] if "target" in rows else rows["advantage"] + rows["value"]
    ratio = np.exp(log_prob - rows["old"])
    inside = np.where(advantage > 0, np.minimum(ratio, 1 + clip), np.maximum(ratio, 1 - clip))
    error = (value - target) ** 2
    if config["clip_value"]:
        near = np.clip(value, rows["value"] - clip, rows["value"] + clip)
        error = np.maximum(error, (near - target) ** 2)
    return {
        "loss/policy": -float(np.mean(inside * advantage)),
        "loss/value": 0.5 * float(np.mean(error)),
        "policy/entropy": float(np.mean(entropy)),
        "policy/kl": float(np.mean(ratio - 1.0 - np.log(ratio))),
        "policy/clipped": float(np.mean((ratio > 1.0 + clip) | (ratio < 1.0 - clip))),
    }


def policy(state: Leaves, rows: dict, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log pi(a|s) and the entropy of every row."""
    if rows["action"].ndim == 1:
        if "allowed" in rows:
            outputs = np.where(rows["allowed"], outputs, -1e9)
        log_p = log_softmax(outputs)
        return of_choice(log_p, rows["action"]), entropy_of_choices(log_p)
    log_std = np.broadcast_to(state[".nets.log_std"], outputs.shape)
    return normal_log_prob(rows["action"], outputs, log_std), normal_entropy(log_std)
