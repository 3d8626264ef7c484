"""DPO (Rafailov 2023), IPO, SLiC's hinge, KTO, ORPO and SimPO."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import pairs, tokens
from oracles.pieces.leaves import Leaves
from oracles.pieces.pairs import log_sigmoid
from oracles.pieces.slopes import gradient

FREE = ("orpo", "simpo")  # losses without a reference


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from pairs of answers."""
    ids, mask = pairs.read(batch)
    reference = None if config["loss"] in FREE else said(state, ".reference", ids)
    kl = reference_point(state, ids, mask) if config["loss"] == "kto" else 0.0

    def loss() -> float:
        return float(np.mean(per_pair(merit(state, ids, mask, config, reference), kl, config)))

    found, own = merit(state, ids, mask, config, reference), said(state, ".model", ids)
    chosen, rejected = config["beta"] * found
    metrics = {
        "loss/preference": loss(),
        "reward/chosen": np.mean(chosen),
        "reward/rejected": np.mean(rejected),
        "reward/margin": np.mean(chosen - rejected),
        "reward/accuracy": np.mean(chosen > rejected),
        "policy/log_prob_chosen": np.mean(np.sum(own[0] * mask[0], -1)),
        "policy/log_prob_rejected": np.mean(np.sum(own[1] * mask[1], -1)),
    }
    if config["loss"] == "kto":
        metrics["reward/reference"] = config["beta"] * kl
    slope = gradient(loss, state, ".model")
    return metrics | tokens.descend(state, ".model", slope, config), {}


def said(state: Leaves, model: str, ids: np.ndarray) -> np.ndarray:
    """Return log p of all tokens of both sides."""
    return np.stack([tokens.log_prob(state, model, side)[0] for side in ids])


def merit(
    state: Leaves, ids: np.ndarray, mask: np.ndarray, config: dict, reference: np.ndarray | None
) -> np.ndarray:
    """Return an answer's gain on the reference, or without one log p per token, ``(2, pair)``."""
    own = said(state, ".model", ids)
    if reference is None:
        return np.sum(own * mask, -1) / mask.sum(-1)
    gain = np.sum((own - reference) * mask, -1)
    return gain / mask.sum(-1) if config["per_token"] else gain


def reference_point(state: Leaves, ids: np.ndarray, mask: np.ndarray) -> float:
    """Return KTO's z_0: the mean gain of mismatched answers, at least 0 (Ethayarajh 2024)."""
    gains = []
    for line, own in pairs.mismatched(ids, mask):
        both = [tokens.log_prob(state, m, line[None])[0][0] for m in (".model", ".reference")]
        gains.append(np.sum((both[0] - both[1])[own]))
    return max(0.0, float(np.mean(gains)))


def per_pair(found: np.ndarray, kl: float, config: dict) -> np.ndarray:
    """Return the loss of every pair."""
    (chosen, rejected), beta = found, config["beta"]
    z = beta * (chosen - rejected)
    if config["loss"] == "dpo":
        wrong = config["smoothing"]
        return -(1.0 - wrong) * log_sigmoid(z) - wrong * log_sigmoid(-z)
    if config["loss"] == "ipo":
        return (chosen - rejected - 1.0 / (2.0 * beta)) ** 2
    if config["loss"] == "hinge":
        return np.where(z < 1.0, 1.0 - z, 0.0)
    if config["loss"] == "simpo":
        return -log_sigmoid(z - config["margin"])
    if config["loss"] == "orpo":
        odds = [x - np.log(1.0 - np.exp(x)) for x in found]
        return -chosen - beta * log_sigmoid(odds[0] - odds[1])
    good = config["desirable"] * (1.0 - np.exp(log_sigmoid(beta * (chosen - kl))))
    bad = config["undesirable"] * (1.0 - np.exp(log_sigmoid(beta * (kl - rejected))))
    return (good + bad) / 2.0
