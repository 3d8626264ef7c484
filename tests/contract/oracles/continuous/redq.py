"""REDQ (Chen 2021, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.online import sac
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient

Values = Callable[..., np.ndarray]  # (where critics stand, obs, action, which members, pass)


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["members"]`` begins with the members that the target asks."""

    def values(critics: str, obs: Any, action: Any, members: Any, when: str) -> np.ndarray:
        x = np.concatenate([obs, action], -1)
        return np.stack([perceptron(state, f"{critics}.nets", x, member=i) for i in members])[
            ..., 0
        ]

    return learn_by(values, state, batch, config, draws)


def learn_by(
    values: Values, state: Leaves, batch: Any, config: dict, draws: dict
) -> tuple[dict, dict]:
    """The same with any way to ask critics: ``values`` returns ``(member, row)``; ``when`` says
    which forward pass it is."""
    every, rows = range(config["members"]), batch["reward"]
    alpha = float(np.exp(state[".log_alpha"]))
    action, log_p = sac.sample(state, batch["next_obs"], draws["next"])
    asked = draws["members"][: config["subset"]]
    least = values(".target", batch["next_obs"], action, asked, "target").min(0)
    y = rows + config["gamma"] * batch["discount"] * (least - alpha * log_p)

    def q() -> np.ndarray:
        return values(".critics", batch["obs"], batch["action"], every, "critics")

    def loss() -> float:
        return 0.5 * float(np.mean(batch["weight"] * np.sum((q() - y) ** 2, 0)))

    before = q()
    metrics = {
        "loss/value": loss(),
        "value/q": float(np.mean(before)),
        "value/spread": float(np.mean(np.std(before, 0))),
        "policy/entropy": -float(np.mean(log_p)),
        "policy/alpha": alpha,
    }
    slope = gradient(loss, state, ".critics")
    adam.descend(state, ".critics", ".optimisers[0]", slope, config["lr"])
    state.follow(".target", ".critics", config["tau"])
    state[".updates"] = state[".updates"] + 1
    if state[".updates"] % config["delay"] == 0:
        policy(values, state, batch, config, draws["now"])
    return metrics, {"td_error": np.mean(np.abs(before - y), 0)}


def policy(values: Values, state: Leaves, batch: Any, config: dict, noise: np.ndarray) -> None:
    """Step down E[alpha log pi - mean_i Q_i], then down the temperature's loss."""
    every, alpha = range(config["members"]), float(np.exp(state[".log_alpha"]))

    def loss() -> float:
        action, log_p = sac.sample(state, batch["obs"], noise)
        q = values(".critics", batch["obs"], action, every, "actor").mean(0)
        return float(np.mean(alpha * log_p - q))

    entropy = -sac.sample(state, batch["obs"], noise)[1]
    slope = gradient(loss, state, ".actor")
    adam.descend(state, ".actor", ".optimisers[1]", slope, config["lr"])
    if config["tune_alpha"]:
        sac.temperature(state, batch, config, entropy, share=1.0, rate=config["lr"])
