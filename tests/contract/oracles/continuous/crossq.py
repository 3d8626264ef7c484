"""CrossQ (Bhatt 2024, section 3), with batch renormalisation (Ioffe 2017, algorithm 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import sac
from oracles.pieces import adam
from oracles.pieces.distributions import squashed
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient

Corrections = list[tuple[np.ndarray, np.ndarray]]  # r and d of each layer
CRITICS = (".critics.nets.layers", ".critics.nets.renorms")
ACTOR = (".actor.net.layers", ".actor.net.renorms")


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["next"]`` and ``draws["now"]`` are standard normal."""
    members, rows = range(config["members"]), len(batch["reward"])
    alpha = float(np.exp(state[".log_alpha"]))
    next_action, log_p = policy(usual(state, ".actor.net", batch["next_obs"]), draws["next"])
    joint = np.concatenate(
        [
            np.concatenate([batch["obs"], batch["action"]], -1),
            np.concatenate([batch["next_obs"], next_action], -1),
        ]
    )
    constants = [corrections(state, ".critics.nets", joint, config, i) for i in members]

    def q() -> np.ndarray:
        nets = ".critics.nets"
        return np.stack([trained(state, nets, joint, constants[i], i)[0][:, 0] for i in members])

    first = q()
    soft = first[:, rows:].min(0) - alpha * log_p
    y = batch["reward"] + config["gamma"] * batch["discount"] * soft

    def loss() -> float:
        return 0.5 * float(np.mean(batch["weight"] * np.sum((q()[:, :rows] - y) ** 2, 0)))

    metrics = {
        "loss/value": loss(),
        "value/q": float(np.mean(first[0, :rows])),
        "policy/entropy": -float(np.mean(log_p)),
        "policy/alpha": alpha,
    }
    slope = gradient(loss, state, CRITICS)
    seen = [trained(state, ".critics.nets", joint, constants[i], i)[1] for i in members]
    adam.descend(state, CRITICS, ".optimisers[0]", slope, config["lr"], beta1=config["beta1"])
    for i in members:
        count(state, ".critics.nets", seen[i], config, i)
    state[".critics.nets.running.batches"] = state[".critics.nets.running.batches"] + 1
    state[".updates"] = state[".updates"] + 1
    if state[".updates"] % config["delay"] == 0:
        actor(state, batch, config, draws["now"])
    return metrics, {"td_error": np.mean(np.abs(first[:, :rows] - y), 0)}


def actor(state: Leaves, batch: Any, config: dict, noise: np.ndarray) -> None:
    """Step down E[alpha log pi - min_i Q_i], then down the temperature's loss."""
    members, alpha = range(config["members"]), float(np.exp(state[".log_alpha"]))
    constants = corrections(state, ".actor.net", batch["obs"], config, None)

    def sample() -> tuple[np.ndarray, np.ndarray]:
        return policy(trained(state, ".actor.net", batch["obs"], constants, None)[0], noise)

    def loss() -> float:
        action, log_p = sample()
        x = np.concatenate([batch["obs"], action], -1)
        q = np.stack([usual(state, ".critics.nets", x, i)[:, 0] for i in members])
        return float(np.mean(alpha * log_p - q.min(0)))

    entropy = -sample()[1]
    slope = gradient(loss, state, ACTOR)
    seen = trained(state, ".actor.net", batch["obs"], constants, None)[1]
    adam.descend(state, ACTOR, ".optimisers[1]", slope, config["lr"], beta1=config["beta1"])
    count(state, ".actor.net", seen, config, None)
    state[".actor.net.running.batches"] = state[".actor.net.running.batches"] + 1
    if config["tune_alpha"]:
        sac.temperature(state, batch, config, entropy, share=1.0, rate=config["lr"])


def policy(outputs: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the squashed action that ``noise`` makes, and its log-density."""
    mean, log_std = np.split(outputs, 2, -1)
    return squashed(mean, np.clip(log_std, sac.LEAST, sac.MOST), noise)


def read(state: Leaves, path: str, member: int | None) -> np.ndarray:
    """Return an array, of an ensemble that of one ``member``."""
    return state[path] if member is None else state[path][member]


def depth(state: Leaves, net: str) -> int:
    """Return the number of linear layers."""
    return sum(1 for path in state.under(f"{net}.layers") if path.endswith(".weight"))


def linear(state: Leaves, net: str, x: np.ndarray, index: int, member: int | None) -> np.ndarray:
    """Return a layer's outputs, activated but after the last."""
    weight, bias = (read(state, f"{net}.layers[{index}].{n}", member) for n in ("weight", "bias"))
    x = x @ weight + bias
    return x if index == depth(state, net) - 1 else np.maximum(x, 0.0)


def running(state: Leaves, net: str, index: int, member: int | None) -> tuple[Any, Any]:
    """Return the running mean and deviation before a layer."""
    where = f"{net}.running.layers[{index}]"
    variance = read(state, f"{where}.variance", member)
    return read(state, f"{where}.mean", member), np.sqrt(variance + 1e-3)


def scaled(state: Leaves, net: str, unit: np.ndarray, index: int, member: int | None) -> np.ndarray:
    """Return what the learned scale and shift make of it."""
    scale, shift = (read(state, f"{net}.renorms[{index}].{n}", member) for n in ("scale", "shift"))
    return unit * scale + shift


def usual(state: Leaves, net: str, x: np.ndarray, member: int | None = None) -> np.ndarray:
    """Return outputs where nothing is trained: by the running mean and deviation."""
    for index in range(depth(state, net)):
        mean, std = running(state, net, index, member)
        x = linear(state, net, scaled(state, net, (x - mean) / std, index, member), index, member)
    return x


def corrections(
    state: Leaves, net: str, x: np.ndarray, config: dict, member: int | None
) -> Corrections:
    """Return r and d of each layer, which are constants; 1 and 0 before the end of the warm-up."""
    found: Corrections = []
    for index in range(depth(state, net)):
        mean, std = running(state, net, index, member)
        batch_std = np.sqrt(x.var(0) + 1e-3)
        r = np.minimum(np.maximum(batch_std / std, 1.0 / 3.0), 3.0)
        d = np.minimum(np.maximum((x.mean(0) - mean) / std, -5.0), 5.0)
        if state[f"{net}.running.batches"].flat[0] < config["renorm_warmup"]:
            r, d = np.ones_like(r), np.zeros_like(d)
        found.append((r, d))
        x = linear(state, net, renormalised(state, net, x, found, member), index, member)
    return found


def renormalised(
    state: Leaves, net: str, x: np.ndarray, known: Corrections, member: int | None
) -> np.ndarray:
    """Return the inputs of the layer whose r and d are the last known ones."""
    r, d = known[-1]
    unit = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * r + d
    return scaled(state, net, unit, len(known) - 1, member)


def trained(
    state: Leaves, net: str, x: np.ndarray, known: Corrections, member: int | None
) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Return outputs in training, and each layer's mean and variance in this batch."""
    seen = []
    for index in range(depth(state, net)):
        seen.append((x.mean(0), x.var(0)))
        unit = renormalised(state, net, x, known[: index + 1], member)
        x = linear(state, net, unit, index, member)
    return x, seen


def count(state: Leaves, net: str, seen: list, config: dict, member: int | None) -> None:
    """Move the running averages towards what was seen."""
    for index, pair in enumerate(seen):
        for name, new in zip(("mean", "variance"), pair, strict=True):
            old = read(state, f"{net}.running.layers[{index}].{name}", member)
            old[...] = config["momentum"] * old + (1.0 - config["momentum"]) * new
