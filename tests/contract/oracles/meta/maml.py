"""MAML (Finn 2017), one iteration: each env's adaptation by derivatives written out, and epochs of
the clipped loss after adaptation by central differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import ppo
from oracles.pieces import normalisers
from oracles.pieces.distributions import log_softmax
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron

POLICY = (".nets.policy", ".nets.log_std")
TERMS = {"normalise_advantage": False, "clip_value": False}


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, ...)``; its first ``adapt_length`` rows are unadapted."""
    start, count = state.frozen(), config["adapt_length"]
    parts = [{k: x[:count] for k, x in batch.items()}, {k: x[count:] for k, x in batch.items()}]
    tasks = [rows_of(start, part, config, head) for head, part in enumerate(parts)]
    done = start[".iteration"] / start[".planned"] if config["anneal"] else 0.0
    every, going, fixed = [], True, {}

    def terms(state: Leaves, rows: Any, config: dict) -> dict[str, float]:
        return losses(state, *tasks, config, fixed)

    for _ in range(config["epochs"]):
        if config["first_order"]:  # the inner gradient is a constant of the update
            fixed = {env: inner_slope(state, rows, config) for env, rows in enumerate(tasks[0])}
        metrics, going = ppo.update(
            state, {}, config, config["lr"] * (1.0 - done), going, parts=terms
        )
        every.append(metrics)
    if config["normalise_obs"]:
        normalisers.count(state, ".obs_statistics.moments[0]", batch["obs"][batch["mask"]])
    state[".reward_statistics.running"] = np.zeros_like(start[".reward_statistics.running"])
    if config["normalise_reward"]:
        ppo.scaled_rewards(state, batch, config)
    state[".iteration"] = start[".iteration"] + 1.0
    means = {name: float(np.mean([metrics[name] for metrics in every])) for name in every[0]}
    for name, part in zip(("before", "after"), parts, strict=True):
        means[f"adaptation/reward_{name}"] = float(part["reward"][part["mask"]].mean())
    return means, {}


def rows_of(state: Leaves, batch: Any, config: dict, head: int) -> list[dict[str, np.ndarray]]:
    """Return each env's valid rows, with advantages and targets by the value at ``head``."""
    one = state.frozen()  # of a network with this value alone
    last = [path for path in one.under(".nets.value")][-2:]
    for path in last:
        one[path] = one[path][..., head : head + 1]
    rewards = batch["reward"]
    if config["normalise_reward"]:
        deviation = np.sqrt(state[".reward_statistics.moments.variance"] + 1e-8)
        rewards = np.clip(rewards / deviation, -10.0, 10.0)
    advantage, value = ppo.advantages(one, batch, rewards, config)
    rows = {
        "obs": normalisers.seen(state, batch["obs"], ".obs_statistics", 10.0),
        "action": batch["action"],
        "old": batch["log_prob"],
        "advantage": advantage,
        "value": value,
        "target": advantage + value,
    }
    if "allowed" in batch:
        rows["allowed"] = batch["allowed"]
    tasks = []
    for env in range(rewards.shape[1]):
        own = {name: x[:, env][batch["mask"][:, env]] for name, x in rows.items()}
        spread = own["advantage"].std() + 1e-8
        tasks.append(own | {"advantage": (own["advantage"] - own["advantage"].mean()) / spread})
    return tasks


def losses(
    state: Leaves, before: list, after: list, config: dict, fixed: dict[int, np.ndarray]
) -> dict[str, float]:
    """Return the parts of the loss over the rows of all envs."""
    outputs, deviations = [], []
    for env, rows in enumerate(after):
        own = adapted(state, before[env], config, fixed.get(env))
        outputs.append(perceptron(own, ".nets.policy", rows["obs"], config["activation"]))
        deviations.append(np.broadcast_to(own[".nets.log_std"], outputs[-1].shape))
    rows, early = together(after), together(before)
    found = Leaves({".nets.log_std": np.concatenate(deviations)})
    value, first = (
        perceptron(state, ".nets.value", each["obs"], config["activation"])[:, head]
        for each, head in ((rows, 1), (early, 0))
    )
    parts = {"policy": np.concatenate(outputs), "value": value}
    made = ppo.losses(found, rows, config | TERMS, parts)
    made["loss/value"] += 0.5 * float(np.mean((first - early["target"]) ** 2))
    return made


def together(tasks: list) -> dict[str, np.ndarray]:
    """Return the rows of all envs, one env after the other."""
    return {name: np.concatenate([rows[name] for rows in tasks]) for name in tasks[0]}


def adapted(state: Leaves, rows: dict, config: dict, fixed: np.ndarray | None) -> Leaves:
    """Return the state after an env's inner steps; ``fixed``: their gradient, if it is constant."""
    own = state.frozen()
    for _ in range(config["inner_steps"]):
        slope = inner_slope(own, rows, config) if fixed is None else fixed
        own.put(POLICY, own.vector(POLICY) + config["inner_lr"] * slope)
    return own


def inner_slope(state: Leaves, rows: dict, config: dict) -> np.ndarray:
    """Return the gradient of E[pi / pi_old A] in the policy's numbers, by the chain rule: d of the
    outputs first, then layer by layer backwards."""
    assert config["activation"] == "tanh"
    layers = len([path for path in state.under(".nets.policy") if path.endswith(".weight")])
    inputs, x = [], rows["obs"]
    for index in range(layers):
        inputs.append(x)
        weight, bias = (state[f".nets.policy.layers[{index}].{k}"] for k in ("weight", "bias"))
        outputs = x @ weight + bias
        x = np.tanh(outputs)
    log_prob, _ = ppo.policy(state, rows, outputs)
    scale = np.exp(log_prob - rows["old"]) * rows["advantage"] / len(log_prob)
    back, of_std = score(state, rows, outputs)
    found = {".nets.log_std": (scale[:, None] * of_std).sum(0)}
    back = scale[:, None] * back
    for index in reversed(range(layers)):
        found[f".nets.policy.layers[{index}].weight"] = inputs[index].T @ back
        found[f".nets.policy.layers[{index}].bias"] = back.sum(0)
        weight = state[f".nets.policy.layers[{index}].weight"]
        back = (back @ weight.T) * (1.0 - inputs[index] ** 2)  # of tanh; unused at the first layer
    return np.concatenate([found[path].ravel() for path in state.under(POLICY)])


def score(state: Leaves, rows: dict, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return d log pi(a|s) / d outputs and / d log deviations, of every row."""
    if rows["action"].ndim == 1:
        if "allowed" in rows:
            outputs = np.where(rows["allowed"], outputs, -1e9)
        taken = np.eye(outputs.shape[1])[rows["action"].astype(int)]
        back = taken - np.exp(log_softmax(outputs))
        return back, np.zeros_like(outputs)
    deviation = np.exp(state[".nets.log_std"])
    z = (rows["action"] - outputs) / deviation
    return z / deviation, z**2 - 1.0
