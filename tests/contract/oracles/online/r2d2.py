"""R2D2 (Kapturowski 2019): one update, stretch by stretch and row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import dqn
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.memory import after
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from stretches ``(batch, time, ...)``."""
    y, start = targets(state, batch, config), memories(state, ".net", batch, config["burn_in"])[-1]
    first = config["burn_in"]
    action, mask = batch["action"][:, first:], batch["mask"][:, first:]
    rows = np.indices(action.shape)

    def terms() -> tuple[float, np.ndarray]:
        q = values(state, ".net", batch, config, start=start)[:, :-1][(*rows, action)]
        each = 0.5 * batch["weight"][:, None] * (y - q) ** 2
        return float(each[mask].mean()), q

    slope = gradient(lambda: terms()[0], state, ".net")
    loss, q = terms()
    metrics = {"loss/value": loss, "value/q": float(q[mask].mean())}
    metrics["loss/grad_norm"] = adam.norm(slope)
    slope = adam.clipped(slope, config["max_grad_norm"])
    adam.descend(state, ".net", ".optimiser", slope, config["lr"])
    state[".updates"] = state[".updates"] + 1
    if state[".updates"] % config["target_period"] == 0:
        state.follow(".target", ".net", 1.0)
    error, eta = np.abs(y - q), config["eta"]
    priority = [
        eta * max(own, default=0.0) + (1.0 - eta) * (np.mean(own) if own.size else 0.0)
        for own in (each[counts] for each, counts in zip(error, mask, strict=True))
    ]
    return metrics, {"td_error": np.array(priority)}


def targets(state: Leaves, batch: Any, config: dict) -> np.ndarray:
    """Return y of every row that is learned from, by going ahead from it row after row."""
    first, gamma = config["burn_in"], config["gamma"]
    online, slow = (values(state, net, batch, config) for net in (".net", ".target"))
    if "allowed" in batch:
        seen = np.concatenate([batch["allowed"], batch["next_allowed"][:, -1:]], 1)[:, first:]
        online = np.where(seen, online, -np.inf)
    found = np.zeros((len(slow), config["length"]))
    for stretch, row in np.ndindex(found.shape):
        total, decay, place = 0.0, 1.0, row
        for _ in range(config["n_step"]):
            at = (stretch, first + place)
            total += decay * batch["reward"][at]
            decay *= gamma * batch["discount"][at]
            place += 1
            is_over = place == config["length"] or batch["last"][at]
            if is_over or not batch["mask"][stretch, first + place]:
                break
        best = online[stretch, place].argmax()
        found[stretch, row] = total + decay * plain(slow[stretch, place, best], config["rescale"])
    return rescaled(found, config["rescale"])


def memories(
    state: Leaves,
    net: str,
    batch: Any,
    rows: int,
    *,
    start: np.ndarray | None = None,
    begin: int = 0,
) -> list[np.ndarray]:
    """Return the memory before row ``begin`` (``start``, or before the first row what the batch
    says), and those that so many rows from it on leave behind."""
    found = [batch["start_memory"] if start is None else start]
    for row in range(begin, begin + rows):
        is_final = row == batch["reward"].shape[1]
        obs = batch["next_obs"][:, -1] if is_final else batch["obs"][:, row]
        begins = np.zeros(len(obs), bool) if is_final else batch["begins"][:, row]
        before = (
            batch[name][:, row - 1] if row else batch[f"start_{name}"]
            for name in ("action", "reward")
        )
        hidden = np.where(begins[:, None], 0.0, found[-1])
        found.append(after(state, net, hidden, (obs, *before), begins))
    return found


def values(
    state: Leaves, net: str, batch: Any, config: dict, start: np.ndarray | None = None
) -> np.ndarray:
    """Return Q of the rows that are learned from and of the observation after the last, ``(batch,
    time, choice)``; ``start`` is the memory after the burn-in, a constant to the gradient."""
    if start is None:
        start = memories(state, net, batch, config["burn_in"])[-1]
    count, begin = config["length"] + 1, config["burn_in"]
    hidden = memories(state, net, batch, count, start=start, begin=begin)[1:]
    return dqn.values(state, net, np.stack(hidden, 1), config)


def rescaled(x: np.ndarray, eps: float | None) -> np.ndarray:
    """Return h(x), as the paper writes it."""
    return x if eps is None else np.sign(x) * (np.sqrt(np.abs(x) + 1.0) - 1.0) + eps * x


def plain(x: np.ndarray, eps: float | None) -> np.ndarray:
    """Return h^-1(x), as the paper writes it."""
    if eps is None:
        return x
    root = (np.sqrt(1.0 + 4.0 * eps * (np.abs(x) + 1.0 + eps)) - 1.0) / (2.0 * eps)
    return np.sign(x) * (root**2 - 1.0)
