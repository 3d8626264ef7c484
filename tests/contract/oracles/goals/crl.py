"""CRL (Eysenbach 2022 with two bilinear critics; the policy climbs them and imitates)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.goals.gcbc import asked, log_prob
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient

BOTH = ("first", "second")


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn critics and policy, both from the state before the update."""
    obs, action, far, act = batch["obs"], batch["action"], batch["policy_goal"], ".nets.policy"
    frozen, rows = state.frozen(), len(batch["obs"])

    def of_critics() -> float:
        whole = 0.0
        for name in BOTH:
            f = scores(state, name, asked(obs, action), batch["goal"], config)
            for i in range(rows):
                for j in range(rows):
                    chance = 1.0 / (1.0 + np.exp(-f[i, j]))
                    whole -= np.log(chance if i == j else 1.0 - chance)
        return float(whole / rows**2 / len(BOTH))

    def mean() -> np.ndarray:
        return perceptron(state, f"{act}.net", asked(obs, far), config["activation"])

    def climbed() -> np.ndarray:
        taken = asked(obs, np.clip(mean(), -1.0, 1.0))
        return np.min([np.diag(scores(frozen, name, taken, far, config)) for name in BOTH], 0)

    scale = float(np.mean(np.abs(climbed()))) + 1e-6

    def of_policy() -> float:
        imitated = log_prob(state, act, asked(obs, far), action, config)
        return float(np.mean(-climbed() / scale - config["alpha"] * imitated))

    f = np.mean([scores(state, n, asked(obs, action), batch["goal"], config) for n in BOTH], 0)
    metrics = {
        "loss/value": of_critics(),
        "loss/policy": of_policy(),
        "value/found": float(np.mean(f.argmax(1) == np.arange(rows))),
        "policy/distance": float(np.mean(((mean() - action) ** 2).sum(-1))),
    }
    slope = gradient(lambda: of_critics() + of_policy(), state, ".nets")
    adam.descend(state, ".nets", ".optimiser", slope, config["lr"])
    return metrics, {}


def scores(
    state: Leaves, name: str, seen: np.ndarray, goal: np.ndarray, config: dict
) -> np.ndarray:
    """Return phi(s_i, a_i) . psi(g_j) over the root of their size, ``(row, goal)``."""
    place = f".nets.critics.{name}"
    phi = perceptron(state, f"{place}.phi", seen, config["activation"])
    psi = perceptron(state, f"{place}.psi", goal, config["activation"])
    return np.einsum("id,jd->ij", phi, psi) / np.sqrt(phi.shape[1])
