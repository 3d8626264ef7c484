"""PPG (Cobbe 2020, algorithm 1): PPO's iteration, and the auxiliary phase."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.on_policy import v_mpo
from oracles.online import ppo
from oracles.pieces import adam, normalisers
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, ...)`` as PPO does, and keep observations and targets."""
    start = state.frozen()
    rewards = ppo.scaled_rewards(start.frozen(), batch, config)
    advantage, value = ppo.advantages(start, batch, rewards, config)
    found = ppo.learn(state, batch, config | {"target_kl": None}, draws)
    place = int(start[".iteration"]) % config["policy_iterations"]
    target = np.where(batch["mask"], advantage + value, 0.0)
    kept = {".seen.target": target, ".seen.mask": batch["mask"]}
    if "allowed" in batch:
        kept |= {".seen.obs['x']": batch["obs"], ".seen.obs['action_mask']": batch["allowed"]}
    else:
        kept[".seen.obs"] = batch["obs"]
    for path, rows in kept.items():
        state[path][place] = rows.reshape(state[path][place].shape)
    return found


def learn_auxiliary(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from the kept rows of all iterations; ``draws["order"]`` is each epoch's order."""
    rows = {"target": state[".seen.target"].ravel(), "mask": state[".seen.mask"].ravel() > 0.0}
    obs = state[".seen.obs"] if ".seen.obs" in state else state[".seen.obs['x']"]
    seen = normalisers.seen(state, obs, ".obs_statistics", 10.0)
    rows["obs"] = seen.reshape(-1, obs.shape[-1])
    is_box = "action" in batch and batch["action"].ndim == 3
    rows["action"] = np.zeros((len(rows["obs"]), 2)) if is_box else np.zeros(len(rows["obs"]))
    if ".seen.obs['action_mask']" in state:
        allowed = state[".seen.obs['action_mask']"] > 0.0
        rows["allowed"] = allowed.reshape(-1, allowed.shape[-1])
        rows["allowed"] |= ~rows["allowed"].any(-1, keepdims=True)
    rows["before"], deviation = v_mpo.of_policy(state, rows, ".nets")
    done = state[".iteration"] / state[".planned"] if config["anneal"] else 0.0
    every = []
    for order in draws["order"]:
        for first in range(0, len(order), config["auxiliary_minibatch"]):
            chosen = order[first : first + config["auxiliary_minibatch"]]
            chosen = chosen[rows["mask"][chosen]]
            part = {name: x[chosen] for name, x in rows.items()}
            every.append(update(state, part, deviation, config, config["lr"] * (1.0 - done)))
    return {name: float(np.mean([found[name] for found in every])) for name in every[0]}, {}


def update(
    state: Leaves, rows: dict, deviation: Any, config: dict, rate: float
) -> dict[str, float]:
    """Take one gradient step of L_joint and of the value's loss; return the metrics."""
    metrics = terms(state, rows, deviation)

    def loss() -> float:
        found = terms(state, rows, deviation)
        both = found["loss/auxiliary"] + found["loss/value"]
        return both + config["clone_coef"] * found["policy/kl"]

    slope = gradient(loss, state, ".nets")
    metrics["loss/grad_norm"] = adam.norm(slope)
    slope = adam.clipped(slope, config["max_grad_norm"])
    adam.descend(state, ".nets", ".auxiliary_optimiser", slope, rate, epsilon=1e-5)
    return metrics


def terms(state: Leaves, rows: dict, deviation: Any) -> dict[str, float]:
    """Return both errors of values, and the KL from the policy at the phase's beginning."""
    if not len(rows["obs"]):
        return dict.fromkeys(("loss/auxiliary", "loss/value", "policy/kl"), 0.0)
    guessed = {
        "loss/auxiliary": hidden(state, ".nets.policy", rows["obs"])
        @ state[".nets.auxiliary.layers[0].weight"]
        + state[".nets.auxiliary.layers[0].bias"],
        "loss/value": perceptron(state, ".nets.value", rows["obs"], "tanh"),
    }
    errors = {
        name: 0.5 * float(np.mean((value[:, 0] - rows["target"]) ** 2))
        for name, value in guessed.items()
    }
    return errors | {"policy/kl": sum_of_kl(state, rows, deviation)}


def hidden(state: Leaves, prefix: str, x: np.ndarray) -> np.ndarray:
    """Return the outputs of a network's last hidden layer."""
    depth = sum(1 for path in state.under(prefix) if path.endswith(".weight"))
    for index in range(depth - 1):
        layer = f"{prefix}.layers[{index}]"
        x = np.tanh(x @ state[f"{layer}.weight"] + state[f"{layer}.bias"])
    return x


def sum_of_kl(state: Leaves, rows: dict, deviation: Any) -> float:
    """Return the mean KL of the policy before from the one now: of normals the whole one."""
    now, own = v_mpo.of_policy(state, rows, ".nets")
    if own is None:
        return v_mpo.parts(state, rows, deviation)["choices"]
    ratio = np.exp(2 * (deviation - own))
    apart = (rows["before"] - now) ** 2 / np.exp(2 * own)
    return float(np.mean(0.5 * np.sum(ratio + apart - 1.0 - np.log(ratio), -1)))
