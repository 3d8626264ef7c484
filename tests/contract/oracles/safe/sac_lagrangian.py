"""SAC under a limit on cost: one update of critics of costs, and of an actor that fears them."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import sac, td3
from oracles.pieces import adam
from oracles.pieces.distributions import entropy_of_choices
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import twins, twins_of_choices
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["cost"]`` samples the policy in s' for the costs."""
    before, alpha = state.frozen(), float(np.exp(state[".log_alpha"]))
    minus, _ = sac.value(state, ".costs_target", batch, "next_", 0.0, noise=draws["cost"])
    y = -batch["cost"] + config["gamma"] * batch["discount"] * minus
    costs, _ = td3.critics(state, batch, config, y, prefix=".costs", optimiser=".costs_optimiser")
    following, _ = sac.value(before, ".target", batch, "next_", alpha, noise=draws["next"])
    y = batch["reward"] + config["gamma"] * batch["discount"] * following
    metrics, samples = td3.critics(
        state, batch, config, y, prefix=".critics", optimiser=".optimisers[0]"
    )

    def loss() -> float:
        return -float(np.mean(judged(state, batch, alpha, draws["now"])[0]))

    entropy = judged(state, batch, alpha, draws["now"])[1]
    metrics |= {"loss/policy": loss(), "policy/entropy": float(np.mean(entropy))}
    slope = gradient(loss, state, ".actor")
    adam.descend(state, ".actor", ".optimisers[1]", slope, config["lr"])
    if config["tune_alpha"]:
        sac.temperature(state, batch, config, entropy, share=0.98, rate=config["lr"])
    for slow, fast in ((".target", ".critics"), (".costs_target", ".costs")):
        state.follow(slow, fast, config["tau"])
    metrics |= {"policy/alpha": alpha, "loss/cost": costs["loss/value"]}
    return metrics | {"value/cost": -costs["value/q"]}, samples


def judged(
    state: Leaves, batch: Any, alpha: float, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return V(s) by (min_i Q_i - m max_i C_i) / (1 + m), and the policy's entropy."""
    m, obs = float(state[".multiplier"]), batch["obs"]
    if batch["action"].ndim == 1:
        log_p = sac.choices(state, batch, "")
        q, minus = (twins_of_choices(state, net, obs) for net in (".critics", ".costs"))
        joined = (q.min(0) - m * (-minus).max(0)) / (1.0 + m)
        return np.sum(np.exp(log_p) * (joined - alpha * log_p), -1), entropy_of_choices(log_p)
    action, log_p = sac.sample(state, obs, noise)
    q, minus = (twins(state, net, obs, action) for net in (".critics", ".costs"))
    return (q.min(0) - m * (-minus).max(0)) / (1.0 + m) - alpha * log_p, -log_p
