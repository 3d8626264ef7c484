"""D4PG (Barth-Maron 2018, algorithm 1, with a categorical critic), on one batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient
from oracles.q_learning import c51


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions: the critic, then the actor by the new critic; both targets move in
    every ``target_period``-th update."""
    action = np.tanh(perceptron(state, ".target.actor.net", batch["next_obs"]))
    following = scores(state, ".target.critics", 0, batch["next_obs"], action)
    m = c51.projected(c51.chances(following), batch, config)

    def own() -> np.ndarray:
        return scores(state, ".nets.critics", 0, batch["obs"], batch["action"])

    metrics, samples = c51.told(own(), m, batch, config)
    slope = gradient(lambda: c51.loss(own(), m, batch), state, ".nets.critics")
    adam.descend(state, ".nets.critics", ".critic_optimiser", slope, config["lr"])

    def actor() -> float:
        action = np.tanh(perceptron(state, ".nets.actor.net", batch["obs"]))
        found = scores(state, ".nets.critics", 0, batch["obs"], action)
        return -float(np.mean(c51.chances(found) @ c51.atoms(config)))

    slope = gradient(actor, state, ".nets.actor")
    adam.descend(state, ".nets.actor", ".actor_optimiser", slope, config["lr"])
    state[".updates"] = state[".updates"] + 1
    if state[".updates"] % config["target_period"] == 0:
        state.follow(".target", ".nets", config["tau"])
    return metrics, samples


def scores(state: Leaves, critics: str, member: int, obs: Any, action: Any) -> np.ndarray:
    """Return one critic's logits, ``(row, atom)``."""
    both = np.concatenate([obs, action], -1)
    return perceptron(state, f"{critics}.nets", both, member=member)
