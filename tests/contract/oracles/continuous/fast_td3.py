"""FastTD3 (Seo 2025, section 3), with AdamW (Loshchilov 2019, algorithm 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.continuous import simba
from oracles.continuous.d4pg import scores
from oracles.pieces import normalisers
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient
from oracles.q_learning import c51

PAIR = (0, 1)


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions; the actor moves in every ``delay``-th update.

    ``draws["noise"]`` is standard normal, ``(row, number)``.
    """
    if config["normalise_obs"]:
        normalisers.count(state, ".normaliser.moments[0]", batch["obs"])
    obs, next_obs = (
        normalisers.seen(state, batch[name], ".normaliser") for name in ("obs", "next_obs")
    )
    m = targets(state, batch, next_obs, config, draws["noise"])

    def own() -> list[np.ndarray]:
        return [scores(state, ".nets.critics", k, obs, batch["action"]) for k in PAIR]

    def critic_loss() -> float:
        return sum(c51.loss(each, goal, batch) for each, goal in zip(own(), m, strict=True))

    told = [c51.told(each, goal, batch, config) for each, goal in zip(own(), m, strict=True)]
    metrics = {"loss/value": critic_loss()}
    metrics["value/q"] = float(np.mean([each["value/q"] for each, _ in told]))
    samples = {"td_error": np.mean([each["td_error"] for _, each in told], 0)}
    slope = gradient(critic_loss, state, ".nets.critics")
    simba.decayed(state, ".nets.critics", ".critic_optimiser", slope, config)
    state.follow(".target", ".nets.critics", config["tau"])

    def actor_loss() -> float:
        action = np.tanh(perceptron(state, ".nets.actor.net", obs))
        found = [scores(state, ".nets.critics", k, obs, action) for k in PAIR]
        both = [c51.chances(each) @ c51.atoms(config) for each in found]
        return -float(np.mean(np.minimum(*both) if config["clipped"] else np.mean(both, 0)))

    state[".updates"] = state[".updates"] + 1
    if state[".updates"] % config["delay"] == 0:
        slope = gradient(actor_loss, state, ".nets.actor")
        simba.decayed(state, ".nets.actor", ".actor_optimiser", slope, config)
    return metrics, samples


def targets(
    state: Leaves, batch: Any, next_obs: Any, config: dict, noise: np.ndarray
) -> list[np.ndarray]:
    """Return each critic's targets, ``(row, atom)``: with ``clipped`` for every row those of the
    critic whose targets have the smaller mean."""
    jitter = np.clip(config["target_noise"] * noise, -config["noise_clip"], config["noise_clip"])
    mu = np.tanh(perceptron(state, ".nets.actor.net", next_obs))
    action = np.clip(mu + jitter, -1.0, 1.0)
    following = [c51.chances(scores(state, ".target", k, next_obs, action)) for k in PAIR]
    m = [c51.projected(p, batch, config) for p in following]
    if not config["clipped"]:
        return m
    z = c51.atoms(config)
    least = [m[0][row] if m[0][row] @ z < m[1][row] @ z else m[1][row] for row in range(len(mu))]
    return [np.stack(least)] * 2
