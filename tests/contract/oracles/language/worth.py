"""What each token of an answer is worth: scores, groups, penalties, returns and a critic."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import tokens
from oracles.pieces.leaves import Leaves


def divergence(away: np.ndarray, kind: str) -> np.ndarray:
    """Return k1, k2 or k3 of l = log p - log q (Schulman 2020)."""
    return {"k1": away, "k2": away**2 / 2.0, "k3": np.exp(-away) - 1.0 + away}[kind]


def values(state: Leaves, ids: np.ndarray) -> np.ndarray:
    """Return the critic's value before each token but the first."""
    read = tokens.hidden(state, ".critic.judge.body", ids) @ state[".critic.judge.head"]
    return read[:, :-1]


def advantages(
    batch: Any, mask: np.ndarray, config: dict, known: tuple[np.ndarray, np.ndarray, Any]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return A of every token, and the critic's targets. ``known``: log p of the policy and of the
    reference as the iteration begins, and the critic's values."""
    now, reference, value = known
    price = np.zeros_like(now)
    if config["kl"] != "none" and config["kl_in"] == "reward":
        price = config["kl_coef"] * divergence(now - reference, config["kl"]) * mask
    lost = np.zeros(len(mask))
    if config["overlong"]:  # DAPO's soft punishment (Yu 2025, eq. 13)
        over = mask.sum(1) - (config["limit"] - config["overlong"])
        lost = -np.minimum(np.maximum(over / config["overlong"], 0.0), 1.0)
    reward = batch["reward"] - price + batch["last"] * lost[:, None]
    if value is not None:
        found = by_critic(batch, mask, config, (reward, value))
        return whitened(found, mask), found + value
    if config["scale"] == "tokens":
        earned = np.where(batch["last"] & mask, (batch["score"] + lost)[:, None], 0.0) - price
        after = np.cumsum((earned * mask)[:, ::-1], 1)[:, ::-1]  # undiscounted
        return whitened(after, mask), None
    score = batch["score"] + lost - price.sum(1)
    return in_groups(score, batch, config)[:, None] * mask, None


def in_groups(score: np.ndarray, batch: Any, config: dict) -> np.ndarray:
    """Return each answer's advantage among the group's other answers that count."""
    found = np.zeros(len(score))
    valid = np.flatnonzero(batch["valid"])
    for row in valid:
        peers = [other for other in valid if batch["group"][other] == batch["group"][row]]
        others = [other for other in peers if other != row]
        baseline = {
            "none": 0.0,
            "mean": np.mean(score[peers]),
            "leave-one-out": np.mean(score[others]),
        }[config["baseline"]]
        spread = {
            "none": 1.0,
            "group": np.std(score[peers], ddof=1) + 1e-4,
            "batch": np.std(score[valid], ddof=1) + 1e-4,
        }[config["scale"]]
        found[row] = (score[row] - baseline) / spread
    return found


def whitened(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return zero mean and unit unbiased deviation where ``mask`` holds, 0 elsewhere."""
    return np.where(mask, (x - x[mask].mean()) / (x[mask].std(ddof=1) + 1e-8), 0.0)


def by_critic(
    batch: Any, mask: np.ndarray, config: dict, known: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return GAE over a row's own tokens (Schulman 2016); a line that goes on beyond its end is
    worth there what the critic says after its last own token."""
    (reward, value), gamma, lam = known, config["gamma"], config["lam"]
    found = np.zeros_like(value)
    for row, own in enumerate(mask):
        places = np.flatnonzero(own)
        goes_on = np.any(batch["last"][row] & (batch["discount"][row] > 0))
        following, ahead = 0.0, 0.0
        if len(places) and goes_on:
            following = value[row, min(places[-1] + 1, len(own) - 1)]
        for place in places[::-1]:
            delta = reward[row, place] + gamma * following - value[row, place]
            ahead = delta + gamma * lam * ahead
            found[row, place], following = ahead, value[row, place]
    return found


def told(batch: Any) -> dict[str, float]:
    """Return the mean score, and the share of rows in groups of one score."""
    valid = np.flatnonzero(batch["valid"])
    score, group = batch["score"][valid], batch["group"][valid]
    flat = [np.ptp(score[group == mine]) < 1e-6 for mine in group]
    return {"data/score": float(np.mean(score)), "data/flat": float(np.mean(flat))}
