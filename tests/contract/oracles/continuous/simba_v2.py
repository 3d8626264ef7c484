"""SimBa v2 (Lee 2025, section 4): features and weights of length 1, and categorical values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from oracles.online import sac
from oracles.pieces import adam, normalisers
from oracles.pieces.distributions import squashed
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient


def learn_returns(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Count the discounted returns of a rollout, step by step."""
    place, found = ".returns.statistics", []
    running = state[f"{place}.running"].copy()
    for time in range(len(batch["reward"])):
        for env in range(len(running)):
            if not batch["mask"][time, env]:
                running[env] = 0.0
                continue
            running[env] = config["gamma"] * running[env] + batch["reward"][time, env]
            found.append(running[env])
            if batch["last"][time, env]:
                running[env] = 0.0
    normalisers.count(state, f"{place}.moments", np.array(found))
    state[f"{place}.running"] = running
    largest = max(float(state[".returns.largest"]), *(abs(x) for x in found))
    state[".returns.largest"] = np.asarray(largest)
    return {"scale": scale(state, config)}, {}


def scale(state: Leaves, config: dict) -> float:
    """Return what rewards are divided by."""
    if not config["normalise_reward"]:
        return 1.0
    deviation = math.sqrt(float(state[".returns.statistics.moments.variance"]) + 1e-8)
    return max(deviation, float(state[".returns.largest"]) / config["v_max"])


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["next"]`` and ``draws["now"]`` are standard normal."""
    if config["normalise_obs"]:
        normalisers.count(state, ".normaliser.moments[0]", batch["obs"])
    obs, following = (
        normalisers.seen(state, batch[name], ".normaliser") for name in ("obs", "next_obs")
    )
    alpha, reward = float(np.exp(state[".log_alpha"])), batch["reward"] / scale(state, config)
    done = min(float(state[".updates"]) / float(state[".planned"]), 1.0)
    rate = config["lr"] * (1.0 - config["lr_decay"] * done)
    members, atoms = range(config["members"]), np.linspace(-1, 1, config["atoms"]) * config["v_max"]

    def chances(critics: str, obs: Any, action: Any) -> np.ndarray:
        x = np.concatenate([obs, action], -1)
        outputs = np.stack([sphere(state, f"{critics}.nets", x, (1, i)) for i in members])
        odds = np.exp(outputs - outputs.max(-1, keepdims=True))
        return odds / odds.sum(-1, keepdims=True)

    def sample(obs: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, log_std = np.split(sphere(state, ".actor.net", obs, (2, None)), 2, -1)
        return squashed(mean, -4.0 + 6.0 * np.tanh(log_std), noise)

    def actor_loss() -> float:
        action, log_p = sample(obs, draws["now"])
        q = (chances(".critics", obs, action) @ atoms).min(0)
        return float(np.mean(alpha * log_p - q))

    entropy = -sample(obs, draws["now"])[1]
    metrics = {"policy/alpha": alpha, "policy/entropy": float(np.mean(entropy))}
    metrics["loss/policy"] = actor_loss()
    step(state, ".actor", ".optimisers[1]", gradient(actor_loss, state, ".actor"), rate)
    if config["tune_alpha"]:
        wanted = config["target_entropy"]
        wanted = -batch["action"].shape[-1] / 2 if wanted is None else wanted
        known = config | {"target_entropy": wanted}
        sac.temperature(state, batch, known, entropy, share=1.0, rate=rate)

    action, log_p = sample(following, draws["next"])
    alpha = float(np.exp(state[".log_alpha"]))
    later = chances(".target", following, action)
    y = reward[:, None] + config["gamma"] * batch["discount"][:, None] * (
        atoms - alpha * log_p[:, None]
    )
    m = np.stack(
        [
            moved(y[row], later[np.argmin(later[:, row] @ atoms), row], atoms)
            for row in range(len(y))
        ]
    )

    def critic_loss() -> float:
        p = chances(".critics", obs, batch["action"])
        return -float(np.mean(batch["weight"] * np.sum(m * np.log(p), (0, 2))))

    p = chances(".critics", obs, batch["action"])
    metrics |= {"loss/value": critic_loss(), "value/q": float(np.mean(p @ atoms))}
    some = np.where(m > 0.0, m, 1.0)
    apart = np.mean(np.sum(m * (np.log(some) - np.log(p)), 2), 0)
    step(state, ".critics", ".optimisers[0]", gradient(critic_loss, state, ".critics"), rate)
    state.follow(".target", ".critics", config["tau"])
    state[".updates"] = state[".updates"] + 1
    return metrics, {"td_error": apart}


def moved(values: np.ndarray, chances: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Return the chances of ``atoms``: each value gives its own to its neighbours."""
    found, apart = np.zeros(len(atoms)), atoms[1] - atoms[0]
    for value, chance in zip(values, chances, strict=True):
        place = (min(max(value, atoms[0]), atoms[-1]) - atoms[0]) / apart
        low = min(int(place), len(atoms) - 2)
        found[low] += chance * (low + 1 - place)
        found[low + 1] += chance * (place - low)
    return found


def step(state: Leaves, prefix: str, optimiser: str, slope: np.ndarray, rate: float) -> None:
    """Take a step of Adam, and divide the weights into each unit by their length."""
    adam.descend(state, prefix, optimiser, slope, rate)
    for path in state.under(prefix):
        if path.endswith(".weight"):
            weight = state[path]
            for unit in np.ndindex(*weight.shape[:-2], weight.shape[-1]):
                column = (*unit[:-1], slice(None), unit[-1])
                weight[column] = weight[column] / math.sqrt(float(np.sum(weight[column] ** 2)))


def unit(x: np.ndarray) -> np.ndarray:
    """Return rows of length 1."""
    return x / np.sqrt(np.sum(x**2, -1, keepdims=True))


def sphere(state: Leaves, net: str, x: np.ndarray, which: tuple[int, int | None]) -> np.ndarray:
    """Return the outputs of all heads; ``which`` is how many there are, and the member."""
    heads, member = which

    def read(path: str) -> np.ndarray:
        leaf = state[f"{net}.{path}"]
        return leaf if member is None else leaf[member]

    def factors(index: int, begun: float, parameter: float) -> np.ndarray:
        return read(f"scalers[{index}].scale") * begun / parameter

    width = len(read("scalers[0].scale"))
    every = sum(1 for path in state.under(f"{net}.layers") if path.endswith(".weight"))
    blocks = (every - 1 - 2 * heads) // 2
    first = math.sqrt(2 / width)
    x = np.concatenate([x, np.full((len(x), 1), 3.0)], -1)
    x = unit(factors(0, first, first) * (unit(x) @ read("layers[0].weight")))
    for block in range(blocks):
        inside = factors(2 * block + 1, 1.0, 1.0) * (x @ read(f"layers[{2 * block + 1}].weight"))
        aim = unit((np.maximum(inside, 0.0) + 1e-8) @ read(f"layers[{2 * block + 2}].weight"))
        share = factors(2 * block + 2, 1 / (blocks + 1), 1 / math.sqrt(width))
        x = unit(x + share * (aim - x))
    found = []
    for head in range(heads):
        at = 2 * (blocks + head) + 1
        hidden = factors(2 * blocks + 1 + head, 1.0, 1.0) * (x @ read(f"layers[{at}].weight"))
        found.append(hidden @ read(f"layers[{at + 1}].weight") + read(f"layers[{at + 1}].bias"))
    return np.concatenate(found, -1)
