"""SAC-N and EDAC (An 2021), with RLPD's switches (Ball 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.offline.iql import normalised
from oracles.online import sac
from oracles.pieces import adam
from oracles.pieces.distributions import entropy_of_choices
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron, slope_in_inputs
from oracles.pieces.slopes import gradient

LEAST = -5.0  # bound of the log deviation


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["members"]`` are the members that the target asks."""
    batch, every = normalised(state, batch), range(config["members"])
    alpha = float(np.exp(state[".log_alpha"]))
    asked = every if config["subset"] is None else draws["members"][: config["subset"]]
    entropy_worth = alpha if config["backup_entropy"] else 0.0
    following, _ = value(
        state, batch, "next_", draws["next"], np.min, how=(".target", asked, entropy_worth)
    )
    y = batch["reward"] + config["gamma"] * batch["discount"] * following
    metrics, samples = critics(state, batch, config, y)

    reduce = np.min if config["subset"] is None else np.mean
    how = (".critics", every, alpha)

    def loss() -> float:
        return -float(np.mean(value(state, batch, "", draws["now"], reduce, how=how)[0]))

    entropy = value(state, batch, "", draws["now"], reduce, how=how)[1]
    metrics |= {"loss/policy": loss(), "policy/entropy": float(np.mean(entropy))}
    slope = gradient(loss, state, ".actor")
    adam.descend(state, ".actor", ".optimisers[1]", slope, config["lr"])
    if config["tune_alpha"]:
        sac.temperature(state, batch, config, entropy, share=0.1, rate=config["lr"])
    state.follow(".target", ".critics", config["tau"])
    return metrics | {"policy/alpha": alpha}, samples


def values(state: Leaves, critics: str, obs: np.ndarray, action: Any, members: Any) -> np.ndarray:
    """Return Q_i of the members, ``(member, row)``; of all choices where there is no action."""
    x = obs if action is None else np.concatenate([obs, action], -1)
    q = np.stack([perceptron(state, f"{critics}.nets", x, member=i) for i in members])
    return q if action is None else q[..., 0]


def value(
    state: Leaves, batch: Any, when: str, noise: np.ndarray, reduce: Any, *, how: tuple
) -> tuple[np.ndarray, np.ndarray]:
    """Return V(s) of the members and temperature in ``how``, reduced as asked; and the entropy."""
    critics, members, alpha = how
    obs = batch[when + "obs"]
    if batch["action"].ndim == 1:
        log_p = sac.choices(state, batch, when)
        q = reduce(values(state, critics, obs, None, members), axis=0)
        return np.sum(np.exp(log_p) * (q - alpha * log_p), -1), entropy_of_choices(log_p)
    action, log_p = sac.sample(state, obs, noise, LEAST)
    q = reduce(values(state, critics, obs, action, members), axis=0)
    return q - alpha * log_p, -log_p


def critics(state: Leaves, batch: Any, config: dict, y: np.ndarray) -> tuple[dict, dict]:
    """Step all members towards ``y`` and, with diversity, away from one another."""
    every, rows = range(config["members"]), np.arange(len(y))

    def q() -> np.ndarray:
        if batch["action"].ndim == 1:
            return values(state, ".critics", batch["obs"], None, every)[:, rows, batch["action"]]
        return values(state, ".critics", batch["obs"], batch["action"], every)

    def loss() -> float:
        squares = float(np.mean(batch["weight"] * np.sum((q() - y) ** 2, 0)))
        eta = config["diversity"]
        return 0.5 * (squares + (eta * alikeness(state, batch, every) if eta else 0.0))

    before = q()
    metrics = {
        "loss/value": loss(),
        "value/q": float(np.mean(before)),
        "value/spread": float(np.mean(np.std(before, 0))),
    }
    if config["diversity"]:
        metrics["value/alikeness"] = alikeness(state, batch, every)
    slope = gradient(loss, state, ".critics")
    adam.descend(state, ".critics", ".optimisers[0]", slope, config["lr"])
    return metrics, {"td_error": np.mean(np.abs(before - y), 0)}


def alikeness(state: Leaves, batch: Any, members: Any) -> float:
    """Return the mean over rows and pairs of the cosine between two members' slopes in the action
    (An 2021, eq. 5)."""
    both, size = np.concatenate([batch["obs"], batch["action"]], -1), batch["action"].shape[-1]
    slopes = [slope_in_inputs(state, ".critics.nets", both, i)[:, -size:] for i in members]
    units = [x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-9) for x in slopes]
    pairs = [
        np.sum(one * other, -1)
        for i, one in enumerate(units)
        for j, other in enumerate(units)
        if i != j
    ]
    return float(np.mean(np.sum(pairs, 0))) / (len(units) - 1)
