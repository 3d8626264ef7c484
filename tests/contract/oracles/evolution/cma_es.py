"""CMA-ES (Hansen 2016, table 1 and figure 6), with a full covariance matrix or, for many weights,
a diagonal one (Ros & Hansen 2008): one generation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from oracles.evolution.openes import count
from oracles.pieces.leaves import Leaves


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from a row of episodes; ``draws["directions"]`` is each member's, ``(member, n)``."""
    mask = batch["mask"]
    members = [i for i in np.argsort(-batch["reward"], kind="stable") if mask[i]]
    state[".generation"] = state[".generation"] + 1
    if len(members) >= 2:
        adapt(state, draws["directions"][members], float(state[".generation"]))
    if config["normalise_obs"]:
        count(state, ".obs_statistics.moments[0]", batch)
    metrics = {
        "population/best": float(batch["reward"][mask].max()),
        "population/steps": float(batch["episode/length"][mask].sum()),
        "population/sigma": float(state[".search.sigma"]),
        "population/longest_axis": float(state[".search.scales"].max()),
        "population/shortest_axis": float(state[".search.scales"].min()),
        "policy/norm": float(np.linalg.norm(state.vector(".nets"))),
    }
    return metrics, {}


def adapt(state: Leaves, z: np.ndarray, generation: float) -> None:
    """Adapt the distribution to its points, the best first."""
    is_full, (lam, n) = ".search.root" in state, z.shape
    root = state[".search.root"] if is_full else np.diag(state[".search.scales"])
    sigma = float(state[".search.sigma"])
    w, mu_eff, c_1, c_mu, c_c, c_s, d_s = rates(lam, n, is_full)
    y = z @ root
    parents = np.maximum(w, 0.0)
    y_w = parents @ y
    state.put(".nets", state.vector(".nets") + sigma * y_w)
    pull = math.sqrt(c_s * (2.0 - c_s) * mu_eff)
    p_s = (1.0 - c_s) * state[".search.path_sigma"] + pull * (parents @ z)
    normal = math.sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n**2))
    length = float(np.linalg.norm(p_s))
    rises = length / math.sqrt(1.0 - (1.0 - c_s) ** (2.0 * (generation + 1.0)))
    h = float(rises < (1.4 + 2.0 / (n + 1.0)) * normal)
    pull = math.sqrt(c_c * (2.0 - c_c) * mu_eff)
    p_c = (1.0 - c_c) * state[".search.path_c"] + h * pull * y_w
    signed = np.where(w < 0.0, w * n / (z**2).sum(1), w)
    kept = 1.0 + c_1 * (1.0 - h) * c_c * (2.0 - c_c) - c_1 - c_mu * w.sum()
    outer = sum(weight * np.outer(each, each) for weight, each in zip(signed, y, strict=True))
    added = c_1 * np.outer(p_c, p_c) + c_mu * outer
    state[".search.sigma"] = np.asarray(sigma * math.exp(c_s / d_s * (length / normal - 1.0)))
    state[".search.path_sigma"], state[".search.path_c"] = p_s, p_c
    before = state[".search.covariance"]
    whole = kept * before + (added if is_full else np.diag(added))
    state[".search.covariance"] = whole
    if generation % max(math.floor(1.0 / (10.0 * n * (c_1 + c_mu))), 1) == 0:
        decompose(state, whole, is_full)


def decompose(state: Leaves, whole: np.ndarray, is_full: bool) -> None:
    """Write the axes and their lengths."""
    if not is_full:
        state[".search.scales"] = np.sqrt(whole)
        return
    values, vectors = np.linalg.eigh((whole + whole.T) / 2.0)
    state[".search.root"] = (vectors * np.sqrt(values)) @ vectors.T
    state[".search.scales"] = np.sqrt(values)


def rates(lam: int, n: int, is_full: bool) -> tuple[Any, ...]:
    """Return w, mu_eff, c_1, c_mu, c_c, c_sigma and d_sigma."""
    half, rank = lam // 2, np.arange(1, lam + 1)
    raw = math.log((lam + 1) / 2.0 if is_full else half + 1.0) - np.log(rank)
    mu_eff = raw[:half].sum() ** 2 / (raw[:half] ** 2).sum()
    c_1 = 2.0 / ((n + 1.3) ** 2 + mu_eff)
    if is_full:
        c_mu = 2.0 * (mu_eff - 2.0 + 1.0 / mu_eff) / ((n + 2.0) ** 2 + mu_eff)
        c_mu = min(1.0 - c_1, c_mu)
        rest = raw[half:].sum() ** 2 / (raw[half:] ** 2).sum()
        least = min(
            1.0 + c_1 / c_mu, 1.0 + 2.0 * rest / (mu_eff + 2.0), (1.0 - c_1 - c_mu) / (n * c_mu)
        )
        w = np.where(raw > 0.0, raw / raw[raw > 0.0].sum(), least * raw / -raw[raw < 0.0].sum())
        c_s, c_c = (
            (mu_eff + 2.0) / (n + mu_eff + 5.0),
            (4.0 + mu_eff / n) / (n + 4.0 + 2.0 * mu_eff / n),
        )
    else:
        w = np.maximum(raw, 0.0) / raw[:half].sum()
        inner = min(1.0, (2.0 * mu_eff - 1.0) / ((n + 2.0) ** 2 + mu_eff))
        c_mu = 2.0 / mu_eff / (n + math.sqrt(2.0)) ** 2 + (1.0 - 1.0 / mu_eff) * inner
        c_mu, c_s, c_c = (
            (n + 2.0) / 3.0 * c_mu,
            (mu_eff + 2.0) / (n + mu_eff + 3.0),
            4.0 / (n + 4.0),
        )
    d_s = 1.0 + 2.0 * max(0.0, math.sqrt((mu_eff - 1.0) / (n + 1.0)) - 1.0) + c_s
    return w, mu_eff, c_1, c_mu, c_c, c_s, d_s
