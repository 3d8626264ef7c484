"""V-MPO (Song 2019, section 4; of normals appendix C): an iteration of epochs of minibatches."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.on_policy import a2c, trpo
from oracles.online import ppo
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient

NETWORKS = (".nets.policy", ".nets.value", ".nets.log_std")
LIMITS = {"choices": "choices_kl", "mean": "mean_kl", "deviation": "deviation_kl"}


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout ``(time, env, ...)``; ``draws["order"]`` is each epoch's order of rows.
    Return the metrics, averaged over the updates, and each row's advantage."""
    start, rows, advantage = a2c.rollout(state, batch, config)
    mask, every = batch["mask"].reshape(-1), []
    rows["before"], deviation = of_policy(state, rows, ".target")
    place = np.cumsum(mask) - 1
    done = start[".iteration"] / start[".planned"] if config["anneal"] else 0.0
    for order in draws["order"]:
        for first in range(0, len(order), config["minibatch"]):
            chosen = order[first : first + config["minibatch"]]
            chosen = place[chosen[mask[chosen]]]
            part = {name: x[chosen] for name, x in rows.items()}
            every.append(update(state, part, deviation, config, config["lr"] * (1.0 - done)))
    a2c.finish(state, batch, config)
    if int(state[".iteration"]) % config["target_period"] == 0:
        for name in (".policy", ".log_std"):
            state.put(".target" + name, state.vector(".nets" + name))
    means = {name: float(np.mean([metrics[name] for metrics in every])) for name in every[0]}
    return means, {"advantage": advantage}


def update(
    state: Leaves, rows: dict, deviation: Any, config: dict, rate: float
) -> dict[str, float]:
    """Take one gradient step, of the networks and of the dual variables; return the metrics."""
    duals = dual_values(state, ".nets.duals")
    metrics = {f"policy/multiplier_{name}": x for name, x in duals.items() if name in LIMITS}
    metrics["policy/temperature"] = duals["temperature"]
    chosen, weights = upper_half(rows["advantage"], duals["temperature"])
    kls = parts(state, rows, deviation)

    def of_networks() -> float:
        found = losses(state, rows, chosen, weights)
        moved = parts(state, rows, deviation)
        limited = sum(duals[name] * kl for name, kl in moved.items())
        return found["loss/policy"] + found["loss/value"] + limited

    def of_duals() -> float:
        now = dual_values(state, ".nets.duals")
        total = sum(now[name] * (config[LIMITS[name]] - kl) for name, kl in kls.items())
        if not len(chosen):
            return 0.0
        mean = np.mean(np.exp(rows["advantage"][chosen] / now["temperature"]))
        return float(total + now["temperature"] * (config["temperature_kl"] + np.log(mean)))

    metrics |= losses(state, rows, chosen, weights)
    metrics |= {f"policy/kl_{name}": kl for name, kl in kls.items()}
    slope = [gradient(of_networks, state, NETWORKS), gradient(of_duals, state, ".nets.duals")]
    slope = np.concatenate(slope)
    metrics["loss/grad_norm"] = adam.norm(slope)
    slope = adam.clipped(slope, config["max_grad_norm"])
    adam.descend(state, ".nets", ".optimiser", slope, rate, epsilon=1e-5)
    return metrics


def dual_values(state: Leaves, prefix: str) -> dict[str, float]:
    """Return eta and the multipliers: log(1 + e^x) + 1e-8."""
    return {
        path.split("'")[1]: float(np.log1p(np.exp(state[path])) + 1e-8)
        for path in state.under(prefix)
    }


def upper_half(advantage: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the larger half, and their weights."""
    order = sorted(range(len(advantage)), key=lambda row: -advantage[row])
    chosen = np.array(order[: max(len(order) // 2, 1)], int)
    raised = np.exp(advantage[chosen] / temperature)
    return chosen, raised / raised.sum()


def losses(state: Leaves, rows: dict, chosen: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Return the losses of policy and value, and the entropy."""
    if not len(chosen):
        return {"loss/policy": 0.0, "loss/value": 0.0, "policy/entropy": 0.0}
    log_prob, entropy = trpo.policy(state, rows)
    value = perceptron(state, ".nets.value", rows["obs"], "tanh")[:, 0]
    return {
        "loss/policy": -float(np.sum(weights * log_prob[chosen])),
        "loss/value": 0.5 * float(np.mean((value - rows["target"]) ** 2)),
        "policy/entropy": float(np.mean(entropy)),
    }


def of_policy(state: Leaves, rows: dict, prefix: str) -> tuple[np.ndarray, Any]:
    """Return log-probabilities of choices and None, or means and log deviations."""
    outputs = perceptron(state, f"{prefix}.policy", rows["obs"], "tanh")
    if rows["action"].ndim == 1:
        allowed = rows.get("allowed", np.ones(outputs.shape, bool))
        return ppo.log_softmax(np.where(allowed, outputs, -1e9)), None
    return outputs, state[f"{prefix}.log_std"].copy()


def parts(state: Leaves, rows: dict, deviation: Any) -> dict[str, float]:
    """Return the parts of the mean KL(pi_old || pi): of choices one, of normals two (eqs. 25, 26).
    ``rows["before"]`` are log-probabilities or means of pi_old, ``deviation`` its log deviation."""
    before, (now, own) = rows["before"], of_policy(state, rows, ".nets")
    if not len(before):
        return {"choices": 0.0} if own is None else {"mean": 0.0, "deviation": 0.0}
    if own is None:
        return {"choices": float(np.mean(np.sum(np.exp(before) * (before - now), -1)))}
    moved = 0.5 * np.sum((now - before) ** 2 / np.exp(deviation) ** 2, -1)
    ratio = np.exp(deviation) ** 2 / np.exp(own) ** 2
    return {
        "mean": float(np.mean(moved)),
        "deviation": float(0.5 * np.sum(ratio - 1.0 - np.log(ratio))),
    }
