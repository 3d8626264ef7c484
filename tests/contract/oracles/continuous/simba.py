"""SimBa (Lee 2025, section 4), with AdamW (Loshchilov 2019, algorithm 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.online import sac
from oracles.pieces import adam, normalisers
from oracles.pieces.distributions import squashed
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import layer_norm
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; ``draws["next"]`` and ``draws["now"]`` are standard normal."""
    if config["normalise_obs"]:
        normalisers.count(state, ".normaliser.moments[0]", batch["obs"])
    seen = {
        name: normalisers.seen(state, batch[name], ".normaliser") for name in ("obs", "next_obs")
    }
    obs, alpha = seen["obs"], float(np.exp(state[".log_alpha"]))
    members = range(config["members"])

    def values(critics: str, obs: Any, action: Any) -> np.ndarray:
        x = np.concatenate([obs, action], -1)
        return np.stack([residual(state, f"{critics}.nets", x, i)[:, 0] for i in members])

    def sample(obs: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, log_std = np.split(residual(state, ".actor.net", obs, None), 2, -1)
        return squashed(mean, np.clip(log_std, -10.0, 2.0), noise)

    action, log_p = sample(seen["next_obs"], draws["next"])
    soft = values(".target", seen["next_obs"], action).min(0) - alpha * log_p
    y = batch["reward"] + config["gamma"] * batch["discount"] * soft

    def critic_loss() -> float:
        errors = values(".critics", obs, batch["action"]) - y
        return 0.5 * float(np.mean(batch["weight"] * np.sum(errors**2, 0)))

    def actor_loss() -> float:
        action, log_p = sample(obs, draws["now"])
        return float(np.mean(alpha * log_p - values(".critics", obs, action).min(0)))

    before = values(".critics", obs, batch["action"])
    metrics = {
        "loss/value": critic_loss(),
        "value/q": float(np.mean(before)),
        "value/spread": float(np.mean(np.std(before, 0))),
        "policy/alpha": alpha,
    }
    decayed(state, ".critics", ".optimisers[0]", gradient(critic_loss, state, ".critics"), config)
    entropy = -sample(obs, draws["now"])[1]
    metrics |= {"loss/policy": actor_loss(), "policy/entropy": float(np.mean(entropy))}
    decayed(state, ".actor", ".optimisers[1]", gradient(actor_loss, state, ".actor"), config)
    if config["tune_alpha"]:
        wanted = config["target_entropy"]
        wanted = -batch["action"].shape[-1] / 2 if wanted is None else wanted
        known = config | {"target_entropy": wanted}
        sac.temperature(state, batch, known, entropy, share=1.0, rate=config["lr"])
    state.follow(".target", ".critics", config["tau"])
    return metrics, {"td_error": np.mean(np.abs(before - y), 0)}


def decayed(state: Leaves, prefix: str, optimiser: str, slope: np.ndarray, config: dict) -> None:
    """Take a step of Adam, and one towards 0, both from where the parameters were."""
    shrunk = (1.0 - config["lr"] * config["weight_decay"]) * state.vector(prefix)
    step = config["lr"] * adam.direction(state, optimiser, slope)
    state.put(prefix, shrunk - step)


def residual(state: Leaves, net: str, x: np.ndarray, member: int | None) -> np.ndarray:
    """Return a residual network's outputs."""

    def read(path: str) -> np.ndarray:
        leaf = state[f"{net}.{path}"]
        return leaf if member is None else leaf[member]

    def linear(x: np.ndarray, index: int) -> np.ndarray:
        return x @ read(f"layers[{index}].weight") + read(f"layers[{index}].bias")

    def norm(x: np.ndarray, index: int) -> np.ndarray:
        return layer_norm(x, read(f"norms[{index}].scale"), read(f"norms[{index}].shift"))

    blocks = sum(1 for path in state.under(f"{net}.norms") if path.endswith(".scale")) - 1
    x = linear(x, 0)
    for block in range(blocks):
        inside = np.maximum(linear(norm(x, block), 2 * block + 1), 0.0)
        x = x + linear(inside, 2 * block + 2)
    return linear(norm(x, blocks), 2 * blocks + 1)
