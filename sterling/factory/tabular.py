"""Logs of a table's world: experience of a known policy where every value is known."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sterling.data.columns import Block
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts, Source
from sterling.envs.tabular import LIMIT, Tabular
from sterling.types import Mistake


def log(
    mdp: Tabular,
    policy: Float[np.ndarray, "state action"],
    episodes: int,
    limit: int = LIMIT,
    seed: int = 0,
) -> Dataset:
    """``episodes`` of ``policy`` in ``mdp``, cut after ``limit`` steps.

    ``extra/log_prob`` holds the policy's, ``extra/state`` the state's number. The returns that
    count as 0 and as 1 are those of the uniform and of the best undiscounted policy over ``limit``
    steps. Equal arguments give equal numbers.
    """
    if policy.shape != mdp.reward.shape or (abs(policy.sum(1) - 1) > 1e-6).any():
        raise Mistake(f"a policy holds chances {mdp.reward.shape}, each row of sum 1")
    if episodes < 1 or limit < 1:
        raise Mistake(f"episodes and limit must be positive; got {episodes} and {limit}")
    random = np.random.default_rng(seed)
    state = _drawn(np.broadcast_to(mdp.start, (episodes, mdp.states)), random)
    alive = np.ones(episodes, bool)
    rows: list[tuple[np.ndarray, ...]] = []
    while alive.any() and len(rows) < limit:
        action = _drawn(policy[state], random)
        following = _drawn(mdp.transition[state, action], random)
        ended = random.uniform(size=episodes) < mdp.end[state, action, following]
        rows.append((state, action, following, ended, alive))
        state, alive = following, alive & ~ended
    columns = [np.stack(part, 1) for part in zip(*rows, strict=True)]
    return _dataset(mdp, policy, columns, f"{limit} steps at most, seed {seed}", limit)


def _dataset(
    mdp: Tabular,
    policy: Float[np.ndarray, "state action"],
    columns: list[np.ndarray],
    note: str,
    limit: int,
) -> Dataset:
    """Columns ``(episode, time)``, the last of which says which rows were lived, as episodes."""
    state, action, following, ended, lived = columns
    lengths = lived.sum(1)
    tails = [
        np.append(row[:n], after[n - 1])
        for row, after, n in zip(state, following, lengths, strict=True)
    ]
    met = np.concatenate(tails)
    state, action, ended = state[lived], action[lived], ended[lived]
    chance = policy[state, action]
    arrays = {
        "obs": met.astype(np.int64) if mdp.numbers else np.eye(mdp.states, dtype=np.float32)[met],
        "action": action.astype(np.int64),
        "reward": mdp.reward[state, action].astype(np.float32),
        "discount": (~ended).astype(np.float32),
        "extra/log_prob": np.log(chance).astype(np.float32),
        "extra/state": state.astype(np.int32),
    }
    block = Block(arrays, lengths.astype(np.int64), np.zeros(len(lengths), np.int32))
    source = Source("log", "made", "sterling.factory.tabular.log", notes=(note,))
    facts = Facts("", _reference(mdp, limit), (source,))
    return Dataset.of(block, mdp.obs, mdp.action, facts)


def _reference(mdp: Tabular, limit: int) -> tuple[float, float]:
    """Mean returns of the uniform policy and of the best one of ``limit`` steps."""
    uniform = np.full(mdp.reward.shape, 1 / mdp.actions)
    going, best = mdp.transition * (1 - mdp.end), np.zeros(mdp.states)
    for _ in range(limit):
        best = (mdp.reward + going @ best).max(1)
    return mdp.worth(uniform, 1.0, limit), float(mdp.start @ best)


def _drawn(chances: Float[np.ndarray, "row choice"], random: np.random.Generator) -> np.ndarray:
    """One choice per row."""
    ladder = np.cumsum(chances, 1)
    dice = random.uniform(size=(len(chances), 1)) * ladder[:, -1:]
    return (dice >= ladder).sum(1)
