"""How random the behaviour policy and the world are, as far as a log can tell."""

from __future__ import annotations

import hashlib

import jax
import numpy as np
from gymnasium import spaces as gym_spaces

from sterling.data.dataset import Dataset

QUERIES, POOL, NEIGHBOURS = 1000, 20_000, 10
WIDEST = 32  # numbers of an observation that distances are taken in; more are mixed down to these
FEWEST = 30  # repetitions from which outcomes tell something


def of_policy(dataset: Dataset) -> float | None:
    """How much actions vary where observations are alike, relative to how much they vary at all.

    The ten nearest observations *of other episodes* are asked: the mean variance of their actions
    over the total variance (boxes), or the mean entropy of their choices over that of all choices.
    0 is a deterministic policy, 1 one that does not look. Neighbours are never quite alike, so it
    is an upper bound. None for actions that do not vary, or fewer than ten other episodes.
    """
    space = dataset.action_space
    if len(dataset) <= NEIGHBOURS or not isinstance(space, (gym_spaces.Box, gym_spaces.Discrete)):
        return None
    random = np.random.default_rng(0)
    rows = np.sort(random.choice(dataset.rows, min(POOL, dataset.rows), replace=False))
    record = dataset.transitions(rows)
    obs = _features([np.asarray(leaf) for leaf in jax.tree.leaves(record.obs)])
    action: np.ndarray = np.asarray(record.action).reshape(len(rows), -1)
    episode = np.searchsorted(np.cumsum(dataset.lengths), rows, "right")
    near = _nearest(obs, episode, random)
    if near is None:
        return None
    if isinstance(space, gym_spaces.Discrete):
        total = _entropy(np.bincount(action[:, 0], minlength=int(space.n)))
        own = [_entropy(np.bincount(action[each, 0], minlength=int(space.n))) for each in near]
        return float(np.clip(np.mean(own) / total, 0, 1)) if total > 0 else None
    total = action.var(0).sum()
    own = action[near].var(1, ddof=1).sum(-1).mean()
    return float(np.clip(own / total, 0, 1)) if total > 0 else None


def of_world(dataset: Dataset) -> float | None:
    """Among pairs of observation and action that occur again, exactly, the share whose reward or
    successor differs; 0 is a deterministic world. None for fewer than ``FEWEST`` repetitions."""
    rows = np.arange(min(dataset.rows, POOL * 5))
    record = dataset.transitions(rows)
    asked = _bytes([*jax.tree.leaves(record.obs), *jax.tree.leaves(record.action)])
    given = _bytes([record.reward, record.discount, *jax.tree.leaves(record.next_obs)])
    first: dict[bytes, bytes] = {}
    differs: dict[bytes, bool] = {}
    repeats = 0
    for pair, outcome in zip(asked, given, strict=True):
        known = first.setdefault(pair, outcome)
        if known is not outcome:
            repeats += 1
            differs[pair] = differs.get(pair, False) or known != outcome
    return sum(differs.values()) / len(differs) if repeats >= FEWEST else None


def _nearest(
    obs: np.ndarray, episode: np.ndarray, random: np.random.Generator
) -> np.ndarray | None:
    """For some rows, the nearest rows of other episodes."""
    from scipy.spatial import cKDTree

    queries = random.choice(len(obs), min(QUERIES, len(obs)), replace=False)
    many = min(8 * NEIGHBOURS, len(obs))
    _, near = cKDTree(obs).query(obs[queries], many)
    found = []
    for query, each in zip(queries, near, strict=True):
        others = each[episode[each] != episode[query]]
        if len(others) >= NEIGHBOURS:
            found.append(others[:NEIGHBOURS])
    return np.array(found) if len(found) >= FEWEST else None


def _features(leaves: list[np.ndarray]) -> np.ndarray:
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], 1).astype(np.float32)
    scale = flat.std(0, dtype=np.float64) + 1e-8  # squares of large numbers overflow 32 bits
    flat = np.nan_to_num(flat - flat.mean(0)) / scale.astype(np.float32)
    if flat.shape[1] > WIDEST:
        mix = np.random.default_rng(0).normal(size=(flat.shape[1], WIDEST)).astype(np.float32)
        flat = flat @ mix
    return flat


def _entropy(counts: np.ndarray) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _bytes(leaves: list[jax.Array]) -> list[bytes]:
    """A hash of every row."""
    flat = [np.asarray(leaf) for leaf in leaves]
    flat = [np.ascontiguousarray(leaf).reshape(len(leaf), -1).view(np.uint8) for leaf in flat]
    whole = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in flat], 1)
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in whole]
