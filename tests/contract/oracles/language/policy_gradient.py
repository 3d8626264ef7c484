"""The policy gradient of text: GRPO (Shao 2024), RLOO, DAPO, GSPO, CISPO, REINFORCE++, PPO."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.language import worth
from oracles.pieces import adam, tokens
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Make an iteration's updates; ``draws["order"]`` are each epoch's rows."""
    ids, mask = tokens.read(batch)
    now = tokens.log_prob(state, ".model", ids, config["temperature"])[0]
    reference = np.zeros_like(now)
    if config["kl"] != "none":
        reference = tokens.log_prob(state, ".reference", ids, config["temperature"])[0]
    value = worth.values(state, ids) if config["baseline"] == "critic" else None
    advantage, target = worth.advantages(batch, mask, config, (now, reference, value))
    spoke = batch["log_prob"]
    weight = np.ones_like(now)
    if config["decoupled"]:
        weight = np.minimum(np.exp(now - spoke), config["cap"])
    rows = {
        "ids": ids,
        "counted": mask,
        "mask": mask & (batch["score"] >= 1.0)[:, None] if config["solved"] else mask,
        "group": batch["group"],
        "advantage": advantage,
        "spoke": spoke,
        "old": now if config["decoupled"] else spoke,
        "weight": weight,
        "reference": reference,
    }
    if value is not None:
        rows |= {"value": value, "target": target}
    every = []
    for order in draws["order"]:
        for chosen in np.split(order, config["minibatches"]):
            every.append(update(state, {name: x[chosen] for name, x in rows.items()}, config))
    metrics = {name: float(np.mean([each[name] for each in every])) for name in every[0]}
    metrics |= worth.told(batch)
    count = np.maximum(mask.sum(1), 1)
    sizes = np.sum(np.abs(advantage) * mask, 1) / count
    return metrics, {"advantage": sizes, "score": batch["score"]}


def update(state: Leaves, rows: dict, config: dict) -> dict[str, float]:
    """Take one step of the policy, and of the critic if there is one."""
    share, counted = shares(rows, config), rows["counted"]
    start = tokens.log_prob(state, ".model", rows["ids"], config["temperature"])[0]
    metrics = {
        f"policy/{name}": float(np.mean(x[counted]))
        for name, x in terms(state, rows, config, start).items()
        if name != "loss"
    }

    def loss() -> float:
        return float(np.sum(share * terms(state, rows, config, start)["loss"]))

    metrics["loss/policy"] = loss()
    slope = gradient(loss, state, ".model")
    if config["baseline"] == "critic":
        metrics |= critic(state, rows, config)
    return metrics | tokens.descend(state, ".model", slope, config)


def shares(rows: dict, config: dict) -> np.ndarray:
    """Return what each token counts in the loss; rows without tokens of their own are none."""
    counted = rows["counted"].astype(float)
    each = counted.sum(1)
    many, how = np.sum(each > 0), config["aggregate"]
    divisor = {
        "token": np.full(len(each), counted.sum()),
        "sequence": many * each,
        "sum": np.full(len(each), many),
        "sum-constant": np.full(len(each), many * config["limit"]),
    }.get(how)
    if how == "prompt":
        total = {group: each[rows["group"] == group].sum() for group in set(rows["group"])}
        groups = sum(1 for size in total.values() if size > 0)
        divisor = np.array([groups * total[group] for group in rows["group"]])
    return rows["mask"] / np.maximum(divisor, 1.0)[:, None]


def terms(state: Leaves, rows: dict, config: dict, start: np.ndarray) -> dict[str, np.ndarray]:
    """Return the loss of every token and what is watched. ``start`` is log p at the parameters that
    the gradient is taken at: what the equations hold constant is made of it."""
    log_prob, entropy = tokens.log_prob(state, ".model", rows["ids"], config["temperature"])
    change = (log_prob - rows["old"]) * rows["counted"]
    fixed = (start - rows["old"]) * rows["counted"]
    if config["level"] == "sum":
        change = np.repeat(change.sum(1, keepdims=True), change.shape[1], 1)
        fixed = np.repeat(fixed.sum(1, keepdims=True), fixed.shape[1], 1)
    elif config["level"] == "sequence":  # the mean's value, the token's gradient
        mean = fixed.sum(1, keepdims=True) / np.maximum(rows["counted"].sum(1, keepdims=True), 1)
        change, fixed = mean + change - fixed, mean + 0.0 * fixed
    each, cut = surrogate(np.exp(change), np.exp(fixed), log_prob, rows["advantage"], config)
    each = each * rows["weight"] - config["entropy_coef"] * entropy
    found = {"entropy": entropy, "cut": cut, "mismatch": np.abs(log_prob - rows["spoke"])}
    if config["kl"] != "none":
        cost = found["kl"] = worth.divergence(log_prob - rows["reference"], config["kl"])
        if config["kl_corrected"]:
            cost = np.exp(log_prob - rows["old"]) * cost
        if config["kl_in"] == "loss":
            each = each + config["kl_coef"] * cost
    return found | {"loss": each}


def surrogate(
    ratio: np.ndarray, fixed: np.ndarray, log_prob: np.ndarray, a: np.ndarray, config: dict
) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss of every token by the rule that limits its ratio, and where it did."""
    low, high, never = 1.0 - config["low"], 1.0 + config["high"], np.zeros(a.shape, bool)
    if config["rule"] == "reinforce":
        return -a * log_prob, never
    if config["rule"] == "none":
        return -ratio * a, never
    if config["rule"] == "cispo":
        held = np.minimum(np.maximum(fixed, low), high)
        return -held * a * log_prob, (held != fixed) & (a != 0)
    inside = np.where(a > 0, np.minimum(ratio, high), np.maximum(ratio, low))
    loss, cut = -inside * a, ((a > 0) & (ratio > high)) | ((a < 0) & (ratio < low))
    if config["rule"] == "dual":
        most = (a < 0) & (loss > -config["dual"] * a)
        loss, cut = np.where(most, -config["dual"] * a, loss), cut | most
    return loss, cut


def critic(state: Leaves, rows: dict, config: dict) -> dict[str, float]:
    """Step the critic towards its targets, whose values are clipped around their old ones."""

    def loss() -> float:
        value = worth.values(state, rows["ids"])
        near = np.clip(value, rows["value"] - 0.2, rows["value"] + 0.2)
        error = np.maximum((value - rows["target"]) ** 2, (near - rows["target"]) ** 2)
        return 0.5 * float(np.mean(error[rows["counted"]]))

    found = {"loss/value": loss()}
    slope = adam.clipped(gradient(loss, state, ".critic.judge"), config["max_grad_norm"])
    adam.descend(state, ".critic.judge", ".critic.optimiser", slope, config["value_lr"])
    return found
