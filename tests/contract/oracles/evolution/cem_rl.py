"""CEM-RL (Pourchot & Sigaud 2019, algorithm 1), with the covariance of the authors' code."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import td3
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron, twins
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a rollout; ``draws["directions"]`` are those of new pairs, ``(pair, number)``."""
    half = config["members"] // 2
    scored = [(i, played(batch, i)) for i in range(config["members"])]
    scored = sorted(((i, x) for i, x in scored if x is not None), key=lambda each: -each[1])
    best = [i for i, _ in scored[:half]]
    weight = np.array([np.log((half + 1) / (k + 1)) for k in range(len(best))])
    weight /= weight.sum()
    middle = state.vector(".nets.actor")
    elites = [member(state, ".members", i) for i in best]
    state[".noise"] = 0.95 * state[".noise"] + 0.05 * config["noise_final"]
    variance = np.full_like(middle, float(state[".noise"]))
    moved = np.zeros_like(middle)
    for w, x in zip(weight, elites, strict=True):
        moved += w * x
        variance += w * (x - middle) ** 2 / half
    state.put(".nets.actor", moved)
    state[".variance"] = variance
    for pair, e in enumerate(draws["directions"]):
        put(state, ".members", pair, moved + np.sqrt(variance) * e)
        put(state, ".members", pair + half, moved - np.sqrt(variance) * e)
    for path in state.under(".actor_optimisers"):
        state[path] = np.zeros_like(state[path])
    metrics = {
        "population/best": scored[0][1],
        "population/mean": float(np.mean([x for _, x in scored])),
        "population/taught": float(sum(w for w, i in zip(weight, best, strict=True) if i < half)),
        "population/deviation": float(np.sqrt(np.mean(variance))),
        "policy/norm": adam.norm(moved),
    }
    return metrics, {}


def played(batch: Any, env: int) -> float | None:
    """Return the mean return of an env's ended episodes; without one, of that which goes on from
    the first row to the last; None if that broke off."""
    returns, total = [], 0.0
    rows = (batch[name][:, env] for name in ("reward", "last", "mask"))
    for reward, last, mask in zip(*rows, strict=True):
        total += reward if mask else 0.0
        if last and mask:
            returns.append(total)
        total = 0.0 if last else total
    if returns:
        return float(np.mean(returns))
    return None if batch["last"][:, env].any() else float(total)


def member(state: Leaves, prefix: str, index: int) -> np.ndarray:
    """Return one member's numbers as a vector."""
    return np.concatenate([state[path][index].ravel() for path in state.under(prefix)])


def put(state: Leaves, prefix: str, index: int, vector: np.ndarray) -> None:
    """Write one member's numbers."""
    start = 0
    for path in state.under(prefix):
        each = state[path][index]
        state[path][index] = vector[start : start + each.size].reshape(each.shape)
        start += each.size


def learn_critics(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions, towards the member of this part of the iteration."""
    steps = config["updates_per_step"] * config["members"] * config["limit"]
    part = (int(state[".updates"]) % steps) / steps
    turn = int(part * (config["members"] // 2))
    clip = config["noise_clip"]
    mu = np.tanh(perceptron(state, ".members.net", batch["next_obs"], "tanh", member=turn))
    jitter = np.clip(config["target_noise"] * draws["noise"], -clip, clip)
    least = twins(state, ".target", batch["next_obs"], np.clip(mu + jitter, -1.0, 1.0)).min(0)
    y = batch["reward"] + config["gamma"] * batch["discount"] * least
    found = td3.critics(state, batch, config, y)
    state[".updates"] = state[".updates"] + 1
    state.follow(".target", ".nets.critics", config["tau"])
    return found


def learn_actors(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Let each member of the first half climb the first critic by itself."""
    for index in range(config["members"] // 2):
        own = state.frozen()
        for path in (*state.under(".members"), *state.under(".actor_optimisers")):
            own[path] = state[path][index].copy()

        def loss(own: Leaves = own) -> float:
            action = np.tanh(perceptron(own, ".members.net", batch["obs"], "tanh"))
            return -float(np.mean(twins(own, ".nets.critics", batch["obs"], action)[0]))

        slope = gradient(loss, own, ".members")
        adam.descend(own, ".members", ".actor_optimisers", slope, config["lr"])
        for path in (*state.under(".members"), *state.under(".actor_optimisers")):
            state[path][index] = own[path]
    return {}, {}
