"""Estimate from a dataset how random the behaviour policy and the environment are."""

from __future__ import annotations

import hashlib

import jax
import numpy as np
from gymnasium import spaces as gym_spaces

from sterling.data.dataset import Dataset

QUERY_ROWS, POOL_ROWS, NEIGHBOURS = 1000, 20_000, 10
MAX_FEATURES = 32  # features used for distances; wider observations are projected to this many
MIN_REPEATS = 30  # repeated pairs (or queries) needed for an estimate


def policy_randomness(dataset: Dataset) -> float | None:
    """Return how much actions vary at similar observations, relative to how much they vary overall.

    For sampled rows, the ten nearest observations *of other episodes* are taken. The result is the
    mean variance of their actions over the total variance (boxes), or the mean entropy of their
    actions over the entropy of all (discrete). A deterministic policy has 0, a policy that ignores
    observations 1. Neighbours are never identical, so it is an upper bound. None if actions do not
    vary, or with fewer than ten other episodes.
    """
    space = dataset.action_space
    if len(dataset) <= NEIGHBOURS or not isinstance(space, (gym_spaces.Box, gym_spaces.Discrete)):
        return None
    random = np.random.default_rng(0)
    rows = np.sort(random.choice(dataset.rows, min(POOL_ROWS, dataset.rows), replace=False))
    record = dataset.transitions(rows)
    obs = _standardised_features([np.asarray(leaf) for leaf in jax.tree.leaves(record.obs)])
    action: np.ndarray = np.asarray(record.action).reshape(len(rows), -1)
    episode = np.searchsorted(np.cumsum(dataset.lengths), rows, "right")
    near = _nearest_neighbours(obs, episode, random)
    if near is None:
        return None
    if isinstance(space, gym_spaces.Discrete):
        total = _count_entropy(np.bincount(action[:, 0], minlength=int(space.n)))
        own = [
            _count_entropy(np.bincount(action[each, 0], minlength=int(space.n))) for each in near
        ]
        return float(np.clip(np.mean(own) / total, 0, 1)) if total > 0 else None
    total = action.var(0).sum()
    own = action[near].var(1, ddof=1).sum(-1).mean()
    return float(np.clip(own / total, 0, 1)) if total > 0 else None


def world_randomness(dataset: Dataset) -> float | None:
    """Return the share of exactly repeated state-action pairs whose reward or successor differs;
    a deterministic environment has 0. None with fewer than ``MIN_REPEATS`` repetitions."""
    rows = np.arange(min(dataset.rows, POOL_ROWS * 5))
    record = dataset.transitions(rows)
    asked = _hash_rows([*jax.tree.leaves(record.obs), *jax.tree.leaves(record.action)])
    given = _hash_rows([record.reward, record.discount, *jax.tree.leaves(record.next_obs)])
    first: dict[bytes, bytes] = {}
    differs: dict[bytes, bool] = {}
    repeats = 0
    for pair, outcome in zip(asked, given, strict=True):
        known = first.setdefault(pair, outcome)
        if known is not outcome:
            repeats += 1
            differs[pair] = differs.get(pair, False) or known != outcome
    return sum(differs.values()) / len(differs) if repeats >= MIN_REPEATS else None


def _nearest_neighbours(
    obs: np.ndarray, episode: np.ndarray, random: np.random.Generator
) -> np.ndarray | None:
    """Return for some randomly chosen rows the nearest rows of other episodes."""
    from scipy.spatial import cKDTree

    queries = random.choice(len(obs), min(QUERY_ROWS, len(obs)), replace=False)
    many = min(8 * NEIGHBOURS, len(obs))
    _, near = cKDTree(obs).query(obs[queries], many)
    found = []
    for query, each in zip(queries, near, strict=True):
        others = each[episode[each] != episode[query]]
        if len(others) >= NEIGHBOURS:
            found.append(others[:NEIGHBOURS])
    return np.array(found) if len(found) >= MIN_REPEATS else None


def _standardised_features(leaves: list[np.ndarray]) -> np.ndarray:
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], 1).astype(np.float32)
    scale = flat.std(0, dtype=np.float64) + 1e-8  # squares of large numbers overflow 32 bits
    flat = np.nan_to_num(flat - flat.mean(0)) / scale.astype(np.float32)
    if flat.shape[1] > MAX_FEATURES:
        mix = np.random.default_rng(0).normal(size=(flat.shape[1], MAX_FEATURES)).astype(np.float32)
        flat = flat @ mix
    return flat


def _count_entropy(counts: np.ndarray) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _hash_rows(leaves: list[jax.Array]) -> list[bytes]:
    """Return a hash of every row."""
    flat = [np.asarray(leaf) for leaf in leaves]
    flat = [np.ascontiguousarray(leaf).reshape(len(leaf), -1).view(np.uint8) for leaf in flat]
    whole = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in flat], 1)
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in whole]
