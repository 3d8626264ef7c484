"""BRO (Nauman 2024, sections 3 and A; where the paper is silent, the authors' code)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.continuous import simba, tqc
from oracles.pieces import adam
from oracles.pieces.distributions import squashed
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import layer_norm
from oracles.pieces.slopes import gradient

LOW, HIGH = -10.0, 7.5
ENVS = 4  # of the problem that the updates are made for
CRITICS, ACTOR, EXPLORER = ".nets.critics", ".nets.actor", ".nets.explorer"


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; the draws are standard normal."""
    if int(state[".updates"]) in updates_of_resets(config):
        begin_again(state, config)
    state[".updates"] = state[".updates"] + 1
    obs, alpha = batch["obs"], float(np.exp(state[".log_alpha"]))
    members = range(config["members"])
    beta, kappa = (bounded(state[name]) for name in (".raw_optimism", ".raw_kl_weight"))
    size = batch["action"].shape[-1]

    def values(critics: str, obs: Any, action: Any) -> np.ndarray:
        x = np.concatenate([obs, action], -1)
        return np.stack([bronet(state, f"{critics}.nets", x, member) for member in members])

    def normal(obs: Any) -> tuple[np.ndarray, np.ndarray]:
        mean, raw = np.split(bronet(state, f"{ACTOR}.net", obs), 2, -1)
        return mean, -10.0 + 6.0 * (1.0 + np.tanh(raw))

    action, log_p = squashed(*normal(batch["next_obs"]), draws["next"])
    both = values(".target", batch["next_obs"], action)
    soft = sum(both) / len(both) - alpha * log_p[:, None]
    y = batch["reward"][:, None] + config["gamma"] * batch["discount"][:, None] * soft

    def critic_loss() -> float:
        z = values(CRITICS, obs, batch["action"])
        return float(np.mean(batch["weight"] * tqc.quantile_losses(z, y)))

    q = values(CRITICS, obs, batch["action"]).mean((0, 2))
    samples = {"td_error": np.abs(q - y.mean(1))}
    metrics = {"loss/value": critic_loss(), "value/q": float(np.mean(q)), "policy/alpha": alpha}
    simba.decayed(state, CRITICS, ".optimisers[0]", gradient(critic_loss, state, CRITICS), config)

    def actor_loss() -> float:
        action, log_p = squashed(*normal(obs), draws["now"])
        return float(np.mean(alpha * log_p - values(CRITICS, obs, action).mean((0, 2))))

    entropy = -squashed(*normal(obs), draws["now"])[1]
    metrics |= {"loss/policy": actor_loss(), "policy/entropy": float(np.mean(entropy))}
    simba.decayed(state, ACTOR, ".optimisers[1]", gradient(actor_loss, state, ACTOR), config)

    mean, log_std = normal(obs)  # of the new actor
    deviation = np.exp(log_std)

    def explorer() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        shift = bronet(state, EXPLORER, np.concatenate([obs, mean], -1))
        raw = mean + shift + config["std_multiplier"] * deviation * draws["explore"]
        z = values(CRITICS, obs, np.tanh(raw))
        apart = np.mean([np.abs(one - z.mean(0)) for one in z], 0).mean(1)
        return z.mean((0, 2)), apart, 0.5 * ((shift / deviation) ** 2).sum(-1)

    def explorer_loss() -> float:
        value, apart, kl = explorer()
        return float(np.mean(kappa * kl - value - beta * apart))

    _, apart, kl = explorer()
    metrics |= {"loss/explorer": explorer_loss(), "explorer/kl": float(np.mean(kl)) / size}
    metrics |= {"explorer/disagreement": float(np.mean(apart))}
    metrics |= {"explorer/optimism": beta, "explorer/kl_weight": kappa}
    slope = gradient(explorer_loss, state, EXPLORER)
    simba.decayed(state, EXPLORER, ".optimisers[2]", slope, config)
    numbers(state, config, float(np.mean(entropy)), float(np.mean(kl)) / size, size)
    state.follow(".target", CRITICS, config["tau"])
    return metrics, samples


def numbers(state: Leaves, config: dict, entropy: float, kl: float, size: int) -> None:
    """Step temperature, optimism and weight of the KL, by Adam with beta_1 = 0.5."""
    wanted = -size / 2 if config["target_entropy"] is None else config["target_entropy"]
    where = ".log_alpha", ".raw_optimism", ".raw_kl_weight"

    def loss() -> float:
        alpha = float(np.exp(state[".log_alpha"]))
        optimism, weight = bounded(state[".raw_optimism"]), bounded(state[".raw_kl_weight"])
        away = kl - config["kl_target"]
        return alpha * (entropy - wanted) + optimism * away - weight * away

    step = adam.direction(state, ".optimisers[3]", gradient(loss, state, where), beta1=0.5)
    rates = np.array([config["lr"] * config["tune_alpha"], *[config["dual_lr"]] * 2])
    state.put(where, state.vector(where) - rates * step)


def updates_of_resets(config: dict) -> set[int]:
    """Return before which updates resets come, found by counting a run's steps."""
    wanted = config["resets"] if isinstance(config["resets"], tuple) else (config["resets"],)
    steps = updates = 0
    while steps < config["warmup"]:
        steps += ENVS
    due = set()
    while steps <= max(wanted):
        before, steps = steps, steps + ENVS * config["collect"]
        if updates and any(before < each <= steps for each in wanted):
            due.add(updates)
        updates += config["learn"]
    return due


def begin_again(state: Leaves, config: dict) -> None:
    """Give everything its first value."""
    state.put(".nets", state.vector(".initial"))
    state.put(".target", state.vector(".initial.critics"))
    state[".log_alpha"] = np.array(np.log(config["alpha"]))
    for name in ("optimism", "kl_weight"):
        share = (np.log(config[name]) - LOW) / (HIGH - LOW)
        state[f".raw_{name}"] = np.array(0.5 * np.log(share / (1.0 - share)))  # artanh(2 x - 1)
    for path in state.under(".optimisers"):
        state[path] = np.zeros(state[path].shape)


def bounded(raw: np.ndarray) -> float:
    """Return a coefficient whose logarithm lies between LOW and HIGH."""
    return float(np.exp(LOW + (HIGH - LOW) / (1.0 + np.exp(-2.0 * raw))))


def bronet(state: Leaves, net: str, x: np.ndarray, member: int | None = None) -> np.ndarray:
    """Return a BroNet's outputs (section 3, figure 3)."""

    def read(path: str) -> np.ndarray:
        leaf = state[f"{net}.{path}"]
        return leaf if member is None else leaf[member]

    def line(x: np.ndarray, index: int) -> np.ndarray:
        x = x @ read(f"layers[{index}].weight") + read(f"layers[{index}].bias")
        return layer_norm(x, read(f"norms[{index}].scale"), read(f"norms[{index}].shift"))

    count = sum(1 for path in state.under(f"{net}.norms") if path.endswith(".scale"))
    x = np.maximum(line(x, 0), 0.0)
    for index in range(1, count, 2):
        x = x + line(np.maximum(line(x, index), 0.0), index + 1)
    x = x @ read(f"layers[{count}].weight")
    return x + read(f"layers[{count}].bias") if f"{net}.layers[{count}].bias" in state else x
