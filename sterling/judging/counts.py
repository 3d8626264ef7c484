"""Small finite worlds: the log's own counts as the model, and the policy's value in it exactly.

    P(s'|s, a) = n(s, a, s') / n(s, a),    r(s, a), d(s, a): the means of what followed
    Q = r + gamma P d V,                   V(s) = sum_a pi(a|s) Q(s, a)

which is what fitted Q evaluation on tables converges to (Duan 2020, arXiv:2002.09516). An action
that was never tried in a state counts as the mean of those that were; a state in which nothing was
tried is worth 0. A cut is not an end: rows count alike.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int

from sterling.data import Dataset
from sterling.judging.policies import Policy, log_probs
from sterling.judging.policies import numbers as numbers_of
from sterling.judging.rows import episode_of, over_rows, starts
from sterling.types import Obs, Record

LARGEST = 1000  # states
ENTRIES = 1_000_000  # of P


@dataclasses.dataclass(frozen=True)
class Finite:
    """A log of a finite world as numbers, and the judged policy's chances."""

    state: Int[np.ndarray, "row"]
    action: Int[np.ndarray, "row"]
    following: Int[np.ndarray, "row"]
    reward: Float[np.ndarray, "row"]
    discount: Float[np.ndarray, "row"]
    episode: Int[np.ndarray, "row"]
    first: Int[np.ndarray, "episode"]  # start states
    chances: Float[np.ndarray, "state action"]

    def solved(
        self, gamma: float, counts: Float[np.ndarray, "episode"] | None = None
    ) -> tuple[Float[np.ndarray, "state action"], float]:
        """Q, and the value of the start states, with each episode counted so often (once)."""
        each = np.ones(len(self.first)) if counts is None else counts
        weight, (states, actions) = each[self.episode], self.chances.shape
        pair = self.state * actions + self.action
        move, size = pair * states + self.following, states * actions * states

        def counted(place: np.ndarray, value: np.ndarray | float, size: int) -> np.ndarray:
            return np.bincount(place, weight * value, size).reshape(states, actions, -1)

        tried = counted(pair, 1.0, states * actions)
        reward = _means(counted(pair, self.reward, states * actions), tried)[..., 0]
        moves = _means(counted(move, self.discount, size), tried)
        onward = np.einsum("sa,sat->st", self.chances, moves)
        wanted = (self.chances * reward).sum(1)
        value = np.linalg.solve(np.eye(states) - gamma * onward, wanted)
        q = reward + gamma * moves @ value
        return q, float(each @ value[self.first] / each.sum())


def finite(dataset: Dataset, policy: Policy) -> Finite | None:
    """The log as a finite world's; None where its states are not numbers or one-hot vectors, are
    too many, or actions are not one choice."""
    states = _states(dataset)
    space = dataset.spec.action
    if states is None or not isinstance(space, spaces.Discrete):
        return None
    actions = int(space.n)
    if states * actions * states > ENTRIES:
        return None
    rows = over_rows(_read, dataset)
    state, action, following, reward, discount, *_ = rows
    chances = _chances(policy, dataset, states, actions, (state, following))
    episode = episode_of(dataset)
    first = state[starts(dataset)]
    return Finite(state, action, following, reward, discount, episode, first, chances)


def _means(
    sums: Float[np.ndarray, "state action n"], tried: Float[np.ndarray, "state action 1"]
) -> Float[np.ndarray, "state action n"]:
    """Sums over how often a pair was tried; of one that never was, all its state's."""
    of_state = sums.sum(1, keepdims=True) / np.maximum(tried.sum(1, keepdims=True), 1e-9)
    return np.where(tried > 0, sums / np.maximum(tried, 1e-9), of_state)


def _states(dataset: Dataset) -> int | None:
    space: Any = dataset.spec.obs
    if isinstance(space, spaces.Discrete):
        return int(space.n) if space.n <= LARGEST and space.start == 0 else None
    vector = isinstance(space, spaces.Box) and len(space.shape) == 1
    if not vector or space.shape[0] > LARGEST or not dataset.rows:
        return None
    hot = over_rows(_is_one_hot, dataset)
    return int(space.shape[0]) if hot.all() else None


def _is_one_hot(record: Record) -> Bool[Array, "row"]:
    return _hot(record.obs) & _hot(record.next_obs)


def _hot(obs: Array) -> Bool[Array, "row"]:
    whole = ((obs == 0.0) | (obs == 1.0)).all(-1)
    return whole & (obs.sum(-1) == 1.0)


def _read(record: Record) -> tuple[Obs, ...]:
    places = numbers_of(record.obs), record.action, numbers_of(record.next_obs)
    return *places, record.reward, record.discount


def _chances(
    policy: Policy,
    dataset: Dataset,
    states: int,
    actions: int,
    met: tuple[np.ndarray, np.ndarray],
) -> Float[np.ndarray, "state action"]:
    """pi(a|s) of the states that occur; elsewhere uniform, which nothing depends on."""
    made = np.full((states, actions), 1.0 / actions)
    for part, at in zip(met, (0, 1), strict=True):
        numbers, rows = np.unique(part, return_index=True)
        found = over_rows(_asked, dataset, policy, actions, index=rows)[at]
        made[numbers] = np.exp(found.astype(np.float64))
    return made / made.sum(1, keepdims=True)


def _asked(policy: Policy, actions: int, record: Record) -> tuple[Array, Array]:
    return log_probs(policy, record.obs, actions), log_probs(policy, record.next_obs, actions)
