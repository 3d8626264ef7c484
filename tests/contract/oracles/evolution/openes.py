"""Evolution strategies (Salimans 2017, algorithm 2), with shared ranks of equal returns."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata

from oracles.pieces import adam, normalisers
from oracles.pieces.leaves import Leaves


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a row of episodes; ``draws["directions"]`` is each pair's, ``(pair, number)``."""
    theta, mask = state.vector(".nets"), batch["mask"]
    pairs = [j for j in range(len(mask) // 2) if mask[2 * j] and mask[2 * j + 1]]
    members = [i for j in pairs for i in (2 * j, 2 * j + 1)]
    ranks = rankdata(batch["reward"][members]) - 1.0
    u = dict(zip(members, ranks / (len(members) - 1) - 0.5, strict=True))
    ascent = np.zeros_like(theta)
    for j in pairs:  # each member's own displacement, weighted by what it is worth
        ascent += u[2 * j] * draws["directions"][j] + u[2 * j + 1] * -draws["directions"][j]
    ascent /= len(members)
    norm = float(np.linalg.norm(theta))
    slope = config["weight_decay"] * theta - ascent
    adam.descend(state, ".nets", ".optimiser", slope, config["lr"])
    if config["normalise_obs"]:
        count(state, ".obs_statistics.moments[0]", batch)
    metrics = {
        "population/best": float(batch["reward"][mask].max()),
        "population/steps": float(batch["episode/length"][mask].sum()),
        "loss/grad_norm": adam.norm(ascent),
        "policy/norm": norm,
    }
    return metrics, {}


def count(state: Leaves, prefix: str, batch: Any) -> None:
    """Merge what the episodes saw: of all observations the sums and the sums of squares."""
    mask = batch["mask"]
    number = batch["start_count"][mask][:, None]
    mean, squares = batch["start_mean"][mask], batch["start_squares"][mask]
    before = float(state[f"{prefix}.count"])
    known = normalisers.mean_of(state, prefix)
    sums = before * known + (number * mean).sum(0)
    second = before * (state[f"{prefix}.variance"] + known**2)
    second = second + (squares + number * mean**2).sum(0)
    total = before + number.sum()
    state[f"{prefix}.mean"] = sums / total
    state[f"{prefix}.remainder"] = np.zeros_like(known)
    state[f"{prefix}.variance"] = second / total - (sums / total) ** 2
    state[f"{prefix}.count"] = np.array(total)
