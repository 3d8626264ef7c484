"""Distillation on a student's own answers (Agarwal 2024)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import tokens
from oracles.pieces.distributions import entropy_of_choices, log_softmax
from oracles.pieces.leaves import Leaves
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Bring the student's distributions at its answers' tokens nearer to the teacher's."""
    ids, mask = tokens.read(batch)
    shared = len(state[".model.embedding"])
    teacher = chances(batch["teacher"], "", ids, config["temperature"], shared)

    def student() -> np.ndarray:
        return chances(state, ".model", ids, config["temperature"], shared)

    def loss() -> float:
        return float(np.mean(divergence(teacher, student(), config["beta"])[mask]))

    entropy = float(np.mean(entropy_of_choices(student())[mask]))
    metrics = {"loss/policy": loss(), "policy/entropy": entropy}
    metrics["data/score"] = float(np.mean(batch["score"][batch["valid"]]))
    slope = gradient(loss, state, ".model")
    return metrics | tokens.descend(state, ".model", slope, config), {"score": batch["score"]}


def chances(
    state: Leaves, prefix: str, ids: np.ndarray, temperature: float, shared: int
) -> np.ndarray:
    """Return log p of the first ``shared`` tokens of the vocabulary at every place but the last."""
    scores = tokens.hidden(state, prefix, ids)[:, :-1] @ state[f"{prefix}.embedding"].T
    return log_softmax(scores[..., :shared] / temperature)


def divergence(teacher: np.ndarray, student: np.ndarray, beta: float) -> np.ndarray:
    """Return the generalised Jensen-Shannon divergence (eq. 1), or a KL at the ends of beta."""
    t, s = np.exp(teacher), np.exp(student)
    if beta == 1.0:
        return np.sum(s * (student - teacher), -1)
    if beta == 0.0:
        return np.sum(t * (teacher - student), -1)
    mixed = np.log(beta * t + (1.0 - beta) * s)
    return beta * np.sum(t * (teacher - mixed), -1) + (1 - beta) * np.sum(s * (student - mixed), -1)
