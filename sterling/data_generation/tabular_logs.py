"""Make datasets in tabular MDPs, by a known policy; every value is then known exactly."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Block
from sterling.envs.native.tabular_mdp import LIMIT, Tabular
from sterling.types import Mistake


def make_log(
    mdp: Tabular,
    policy: Float[np.ndarray, "state action"],
    episodes: int,
    limit: int = LIMIT,
    seed: int = 0,
) -> Dataset:
    """Make a dataset of ``episodes`` episodes of ``policy`` in ``mdp``, truncated after ``limit``
    steps.

    ``extra/log_prob`` holds the policy's log-probabilities, ``extra/state`` the state's index. The
    returns that count as 0 and as 1 are those of the uniform policy and of the best policy,
    undiscounted, over ``limit`` steps. Equal arguments give equal numbers.
    """
    if policy.shape != mdp.reward.shape or (abs(policy.sum(1) - 1) > 1e-6).any():
        raise Mistake(
            f"A policy must have shape {mdp.reward.shape} (state, action), and each row must sum "
            f"to 1; got shape {policy.shape}."
        )
    if episodes < 1 or limit < 1:
        raise Mistake(f"episodes and limit must be positive; got {episodes} and {limit}.")
    random = np.random.default_rng(seed)
    state = _draw_choices(np.broadcast_to(mdp.start, (episodes, mdp.states)), random)
    alive = np.ones(episodes, bool)
    rows: list[tuple[np.ndarray, ...]] = []
    while alive.any() and len(rows) < limit:
        action = _draw_choices(policy[state], random)
        following = _draw_choices(mdp.transition[state, action], random)
        ended = random.uniform(size=episodes) < mdp.end[state, action, following]
        rows.append((state, action, following, ended, alive))
        state, alive = following, alive & ~ended
    columns = [np.stack(part, 1) for part in zip(*rows, strict=True)]
    return _to_dataset(mdp, policy, columns, f"{limit} steps at most, seed {seed}", limit)


def _to_dataset(
    mdp: Tabular,
    policy: Float[np.ndarray, "state action"],
    columns: list[np.ndarray],
    note: str,
    limit: int,
) -> Dataset:
    """Make a dataset of columns ``(episode, time)``; the last column is the mask of valid rows."""
    state, action, following, ended, valid = columns
    lengths = valid.sum(1)
    tails = [
        np.append(row[:n], after[n - 1])
        for row, after, n in zip(state, following, lengths, strict=True)
    ]
    met = np.concatenate(tails)
    state, action, ended = state[valid], action[valid], ended[valid]
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
    source = Source("log", "made", "sterling.data_generation.tabular_logs.make_log", notes=(note,))
    facts = Facts("", _reference_scores(mdp, limit), (source,))
    return Dataset.from_block(block, mdp.obs, mdp.action, facts)


def _reference_scores(mdp: Tabular, limit: int) -> tuple[float, float]:
    """Return the mean returns of the uniform policy and of the best policy over ``limit`` steps."""
    uniform = np.full(mdp.reward.shape, 1 / mdp.actions)
    going, best = mdp.transition * (1 - mdp.end), np.zeros(mdp.states)
    for _ in range(limit):
        best = (mdp.reward + going @ best).max(1)
    return mdp.expected_return(uniform, 1.0, limit), float(mdp.start @ best)


def _draw_choices(
    chances: Float[np.ndarray, "row choice"], random: np.random.Generator
) -> np.ndarray:
    """Draw one index per row with the given probabilities."""
    ladder = np.cumsum(chances, 1)
    drawn = random.uniform(size=(len(chances), 1)) * ladder[:, -1:]
    return (drawn >= ladder).sum(1)
