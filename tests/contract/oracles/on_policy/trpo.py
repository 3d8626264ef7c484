"""TRPO (Schulman 2015, appendix C) with Fisher's matrix written out; the critic by epochs."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.on_policy import a2c
from oracles.online import ppo
from oracles.pieces import adam
from oracles.pieces.distributions import log_softmax
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient

STEP = 1e-5
POLICY = (".nets.policy", ".nets.log_std")


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, ...)``; ``draws["order"]`` is each epoch's order of rows.
    Return the metrics and each row's advantage."""
    _, rows, advantage = a2c.rollout(state, batch, config)
    losses = critic(state, rows, batch["mask"].reshape(-1), config, draws["order"])
    metrics = policy_step(state, rows, config) | {"loss/value": float(np.mean(losses))}
    a2c.finish(state, batch, config)
    return metrics, {"advantage": advantage}


def policy_step(state: Leaves, rows: dict, config: dict) -> dict[str, float]:
    """Take the longest step that the limit and the surrogate allow; return the metrics."""
    paths = [path for prefix in POLICY for path in state.under(prefix)]
    scores = rows["advantage"]
    if config["normalise_advantage"]:
        scores = (scores - scores.mean()) / (scores.std() + 1e-8)
    outputs, entropy = of_policy(state, rows), policy(state, rows)[1]

    def surrogate() -> float:
        return float(np.mean(np.exp(policy(state, rows)[0] - rows["old"]) * scores))

    slope = np.concatenate([gradient(surrogate, state, path) for path in paths])
    matrix = fisher(state, rows, paths) + config["damping"] * np.eye(len(slope))
    toward = solved(matrix, slope, config["cg_steps"])
    longest = np.sqrt(2.0 * config["target_kl"] / (toward @ matrix @ toward)) * toward
    kept, before = {path: state[path].copy() for path in paths}, surrogate()
    for tried in range(config["line_search_steps"]):
        share, place = config["shrink"] ** tried, 0
        for path in paths:
            piece = longest[place : place + kept[path].size].reshape(kept[path].shape)
            state[path], place = kept[path] + share * piece, place + kept[path].size
        moved = divergence(outputs, of_policy(state, rows))
        if moved <= config["target_kl"] and surrogate() > before:
            break
    else:
        share, moved = 0.0, 0.0
        state.update(kept)
    return {
        "loss/policy": -surrogate(),
        "policy/kl": moved,
        "policy/entropy": float(np.mean(entropy)),
        "policy/step": share,
    }


def policy(state: Leaves, rows: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return log pi(a|s) and the entropy of every row."""
    outputs = perceptron(state, ".nets.policy", rows["obs"], "tanh")
    return ppo.policy(state, rows, outputs)


def of_policy(state: Leaves, rows: dict) -> tuple[np.ndarray, np.ndarray | None]:
    """Return log-probabilities of choices and None, or means and log deviations."""
    outputs = perceptron(state, ".nets.policy", rows["obs"], "tanh")
    if rows["action"].ndim == 1:
        allowed = rows.get("allowed", np.ones(outputs.shape, bool))
        return log_softmax(np.where(allowed, outputs, -1e9)), None
    return outputs, state[".nets.log_std"].copy()


def divergence(old: Any, new: Any) -> float:
    """Return the mean KL(old || new)."""
    if old[1] is None:
        return float(np.mean(np.sum(np.exp(old[0]) * (old[0] - new[0]), -1)))
    ratio = (np.exp(2 * old[1]) + (old[0] - new[0]) ** 2) / np.exp(2 * new[1])
    return float(np.mean(np.sum(new[1] - old[1] + 0.5 * ratio - 0.5, -1)))


def fisher(state: Leaves, rows: dict, paths: list[str]) -> np.ndarray:
    """Return E[ d log p d log p^T ]: of choices sum p s s^T over all of them, of normals J^T J over
    the variance for the means, and 2 for each log deviation."""
    slopes = []
    for path in paths:
        leaf = state[path]
        for place in np.ndindex(leaf.shape):
            kept, found = leaf[place], []
            for sign in (1.0, -1.0):
                leaf[place] = kept + sign * STEP
                found.append(of_policy(state, rows))
            leaf[place] = kept
            mean = (found[0][0] - found[1][0]) / (2.0 * STEP)
            deviation = 0.0 if found[0][1] is None else (found[0][1] - found[1][1]) / (2.0 * STEP)
            slopes.append((mean, np.broadcast_to(deviation, mean.shape)))
    means, deviations = (np.array([pair[index] for pair in slopes]) for index in (0, 1))
    at = of_policy(state, rows)
    weight = np.exp(at[0]) if at[1] is None else np.broadcast_to(np.exp(-2 * at[1]), at[0].shape)
    whole = np.einsum("irk,jrk,rk->ij", means, means, weight)
    return (whole + 2.0 * np.einsum("irk,jrk->ij", deviations, deviations)) / len(at[0])


def solved(matrix: np.ndarray, target: np.ndarray, steps: int) -> np.ndarray:
    """Return conjugate gradient's x after some steps (Shewchuk 1994, appendix B2)."""
    x, residual = np.zeros_like(target), target.copy()
    toward = residual.copy()
    for _ in range(steps):
        alpha = (residual @ residual) / (toward @ matrix @ toward)
        x = x + alpha * toward
        following = target - matrix @ x
        toward = following + (following @ following) / (residual @ residual) * toward
        residual = following
    return x


def critic(state: Leaves, rows: dict, mask: np.ndarray, config: dict, orders: Any) -> list[float]:
    """Take a step of Adam for each minibatch; return their errors."""
    place, every = np.cumsum(mask) - 1, []
    for order in orders:
        for first in range(0, len(order), config["minibatch"]):
            chosen = order[first : first + config["minibatch"]]
            chosen = place[chosen[mask[chosen]]]

            def error(chosen: np.ndarray = chosen) -> float:
                value = perceptron(state, ".nets.value", rows["obs"][chosen], "tanh")[:, 0]
                return float(np.mean((value - rows["target"][chosen]) ** 2))

            every.append(error())
            slope = gradient(error, state, ".nets.value")
            adam.descend(state, ".nets.value", ".optimiser", slope, config["lr"])
    return every
