"""MPO (Abdolmaleki 2018) with the decoupled M-step of Abdolmaleki 2018b, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.on_policy.v_mpo import LIMITS, dual_values
from oracles.pieces import adam
from oracles.pieces.distributions import entropy_of_choices, log_softmax, normal_entropy
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["next"]`` and ``draws["now"]`` are standard normal, for every
    action of an expectation."""
    q, prior, _ = actions(state, batch, "next_", draws)
    following = np.sum(prior * q, 0)
    y = batch["reward"] + config["gamma"] * batch["discount"] * following

    def error() -> float:
        return float(np.mean(batch["weight"] * 0.5 * (of_rows(state, batch) - y) ** 2))

    metrics = {"loss/value": error(), "value/q": float(np.mean(of_rows(state, batch)))}
    samples = {"td_error": np.abs(of_rows(state, batch) - y)}
    slope = gradient(error, state, ".nets.critics")
    adam.descend(state, ".nets.critics", ".optimisers[0]", slope, config["lr"])
    metrics |= improve(state, batch, config, draws)
    state[".updates"] = state[".updates"] + 1
    if int(state[".updates"]) % config["target_period"] == 0:
        state.put(".target", state.vector(".nets"))
    return metrics, samples


def of_rows(state: Leaves, batch: Any) -> np.ndarray:
    """Return Q(s, a) of the actions that were taken."""
    if batch["action"].ndim == 1:
        values = perceptron(state, ".nets.critics.nets", batch["obs"], member=0)
        return values[np.arange(len(values)), batch["action"].astype(int)]
    both = np.concatenate([batch["obs"], batch["action"]], -1)
    return perceptron(state, ".nets.critics.nets", both, member=0)[:, 0]


def of_policy(state: Leaves, batch: Any, when: str, prefix: str) -> Any:
    """Return log-probabilities of choices, or the mean and log deviation before squashing."""
    outputs = perceptron(state, f"{prefix}.actor.net", batch[when + "obs"])
    if batch["action"].ndim > 1:
        mean, log_std = np.split(outputs, 2, -1)
        return mean, np.clip(log_std, -20.0, 2.0)
    if when + "allowed" in batch:
        outputs = np.where(batch[when + "allowed"], outputs, -1e9)
    return log_softmax(outputs)


def actions(state: Leaves, batch: Any, when: str, draws: dict) -> tuple[Any, Any, Any]:
    """Return Q' of the actions ``(action, row)``, their weights in an expectation over pi', and
    the actions before squashing (None: of choices)."""
    pi, obs = of_policy(state, batch, when, ".target"), batch[when + "obs"]
    if batch["action"].ndim == 1:
        return perceptron(state, ".target.critics.nets", obs, member=0).T, np.exp(pi).T, None
    noise, found = draws["next" if when else "now"], []
    raw = pi[0] + np.exp(pi[1]) * noise
    for each in raw:
        both = np.concatenate([obs, np.tanh(each)], -1)
        found.append(perceptron(state, ".target.critics.nets", both, member=0)[:, 0])
    return np.stack(found), np.full((len(raw), len(obs)), 1.0 / len(raw)), raw


def improve(state: Leaves, batch: Any, config: dict, draws: dict) -> dict[str, float]:
    """Take a step of the policy and one of the dual variables; return the metrics."""
    q, prior, raw = actions(state, batch, "", draws)
    duals, old = dual_values(state, ".duals"), of_policy(state, batch, "", ".target")
    raised = prior * np.exp((q - q.max(0)) / duals["temperature"])
    weights = raised / raised.sum(0)
    kls = parts(old, of_policy(state, batch, "", ".nets"))

    def fit() -> float:
        return -float(np.mean(np.sum(weights * log_probs(state, batch, old, raw), 0)))

    def of_actor() -> float:
        moved = parts(old, of_policy(state, batch, "", ".nets"))
        return fit() + sum(duals[name] * kl for name, kl in moved.items())

    def of_duals() -> float:
        now = dual_values(state, ".duals")
        means = np.log(np.sum(prior * np.exp(q / now["temperature"]), 0))
        total = now["temperature"] * (config["temperature_kl"] + np.mean(means))
        return total + sum(now[name] * (config[LIMITS[name]] - kl) for name, kl in kls.items())

    metrics = {"loss/policy": fit(), "policy/temperature": duals["temperature"]}
    metrics["policy/entropy"] = entropy(of_policy(state, batch, "", ".nets"))
    metrics |= {f"policy/kl_{name}": kl for name, kl in kls.items()}
    metrics |= {f"policy/multiplier_{name}": duals[name] for name in kls}
    slope = gradient(of_actor, state, ".nets.actor")
    adam.descend(state, ".nets.actor", ".optimisers[1]", slope, config["lr"])
    slope = gradient(of_duals, state, ".duals")
    adam.descend(state, ".duals", ".optimisers[2]", slope, config["dual_lr"])
    return metrics


def log_probs(state: Leaves, batch: Any, old: Any, raw: Any) -> np.ndarray:
    """Return what is weighted, ``(action, row)``: log pi of choices; of normals the sum of that of
    the new mean with the old deviation and that of the old mean with the new deviation."""
    pi = of_policy(state, batch, "", ".nets")
    if raw is None:
        return pi.T
    pairs = ((pi[0], old[1]), (old[0], pi[1]))
    found = np.zeros(raw.shape[:2])
    for mean, log_std in pairs:
        z = (raw - mean) / np.exp(log_std)
        found += np.sum(-0.5 * z**2 - log_std - 0.5 * np.log(2.0 * np.pi), -1)
    return found


def parts(old: Any, new: Any) -> dict[str, float]:
    """Return the parts of the mean KL(old || new): of choices one, of normals two."""
    if not isinstance(old, tuple):
        return {"choices": float(np.mean(np.sum(np.exp(old) * (old - new), -1)))}
    moved = 0.5 * np.sum(((new[0] - old[0]) / np.exp(old[1])) ** 2, -1)
    ratio = np.exp(2.0 * (old[1] - new[1]))
    wider = 0.5 * np.sum(ratio - 1.0 - np.log(ratio), -1)
    return {"mean": float(np.mean(moved)), "deviation": float(np.mean(wider))}


def entropy(pi: Any) -> float:
    """Return the mean entropy, of normals before squashing."""
    found = normal_entropy(pi[1]) if isinstance(pi, tuple) else entropy_of_choices(pi)
    return float(np.mean(found))
