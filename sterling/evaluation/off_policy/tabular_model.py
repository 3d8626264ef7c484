"""Small finite worlds: count the dataset's transitions as a model, and solve for the policy's value
exactly.

    P(s'|s, a) = n(s, a, s') / n(s, a),    r(s, a), d(s, a): means of reward and discount
    Q = r + gamma P d V,                   V(s) = sum_a pi(a|s) Q(s, a)

Fitted Q evaluation on tables converges to this (Duan 2020, arXiv:2002.09516). An action never tried
in a state gets the mean of those that were tried there; a state in which nothing was tried has
value 0. Truncations are not terminations: all rows count alike.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int

from sterling.data import Dataset
from sterling.evaluation.off_policy.log_rows import episode_numbers, first_rows, map_rows
from sterling.evaluation.off_policy.policy_probabilities import Policy, action_log_probs
from sterling.evaluation.off_policy.policy_probabilities import state_numbers as numbers_of
from sterling.types import Obs, Record

MAX_STATES = 1000  # states
MAX_ENTRIES = 1_000_000  # entries of P


@dataclasses.dataclass(frozen=True)
class CountedModel:
    """A dataset of a finite world as integers, and the evaluated policy's probabilities."""

    state: Int[np.ndarray, "row"]
    action: Int[np.ndarray, "row"]
    following: Int[np.ndarray, "row"]
    reward: Float[np.ndarray, "row"]
    discount: Float[np.ndarray, "row"]
    episode: Int[np.ndarray, "row"]
    first: Int[np.ndarray, "episode"]  # first state of each episode
    chances: Float[np.ndarray, "state action"]

    def solve(
        self, gamma: float, counts: Float[np.ndarray, "episode"] | None = None
    ) -> tuple[Float[np.ndarray, "state action"], float]:
        """Return Q and the mean value of the start states, with each episode counted ``counts``
        times (None: once)."""
        each = np.ones(len(self.first)) if counts is None else counts
        weight, (states, actions) = each[self.episode], self.chances.shape
        pair = self.state * actions + self.action
        move, size = pair * states + self.following, states * actions * states

        def counted(place: np.ndarray, value: np.ndarray | float, size: int) -> np.ndarray:
            return np.bincount(place, weight * value, size).reshape(states, actions, -1)

        tried = counted(pair, 1.0, states * actions)
        reward = _mean_outcomes(counted(pair, self.reward, states * actions), tried)[..., 0]
        moves = _mean_outcomes(counted(move, self.discount, size), tried)
        onward = np.einsum("sa,sat->st", self.chances, moves)
        wanted = (self.chances * reward).sum(1)
        value = np.linalg.solve(np.eye(states) - gamma * onward, wanted)
        q = reward + gamma * moves @ value
        return q, float(each @ value[self.first] / each.sum())


def count_model(dataset: Dataset, policy: Policy) -> CountedModel | None:
    """Convert the dataset; None if its states are not integers or one-hot vectors, are too many, or
    its actions are not one discrete choice."""
    states = _state_count(dataset)
    space = dataset.spec.action
    if states is None or not isinstance(space, spaces.Discrete):
        return None
    actions = int(space.n)
    if states * actions * states > MAX_ENTRIES:
        return None
    rows = map_rows(_row_arrays, dataset)
    state, action, following, reward, discount, *_ = rows
    chances = _policy_table(policy, dataset, states, actions, (state, following))
    episode = episode_numbers(dataset)
    first = state[first_rows(dataset)]
    return CountedModel(state, action, following, reward, discount, episode, first, chances)


def _mean_outcomes(
    sums: Float[np.ndarray, "state action n"], tried: Float[np.ndarray, "state action 1"]
) -> Float[np.ndarray, "state action n"]:
    """Divide sums by how often each pair was tried; pairs never tried get the mean over their
    state."""
    of_state = sums.sum(1, keepdims=True) / np.maximum(tried.sum(1, keepdims=True), 1e-9)
    return np.where(tried > 0, sums / np.maximum(tried, 1e-9), of_state)


def _state_count(dataset: Dataset) -> int | None:
    space: Any = dataset.spec.obs
    if isinstance(space, spaces.Discrete):
        return int(space.n) if space.n <= MAX_STATES and space.start == 0 else None
    vector = isinstance(space, spaces.Box) and len(space.shape) == 1
    if not vector or space.shape[0] > MAX_STATES or not dataset.rows:
        return None
    hot = map_rows(_rows_are_one_hot, dataset)
    return int(space.shape[0]) if hot.all() else None


def _rows_are_one_hot(record: Record) -> Bool[Array, "row"]:
    return _are_one_hot(record.obs) & _are_one_hot(record.next_obs)


def _are_one_hot(obs: Array) -> Bool[Array, "row"]:
    whole = ((obs == 0.0) | (obs == 1.0)).all(-1)
    return whole & (obs.sum(-1) == 1.0)


def _row_arrays(record: Record) -> tuple[Obs, ...]:
    places = numbers_of(record.obs), record.action, numbers_of(record.next_obs)
    return *places, record.reward, record.discount


def _policy_table(
    policy: Policy,
    dataset: Dataset,
    states: int,
    actions: int,
    met: tuple[np.ndarray, np.ndarray],
) -> Float[np.ndarray, "state action"]:
    """Return pi(a|s) of the states that occur; elsewhere uniform, which affects nothing."""
    made = np.full((states, actions), 1.0 / actions)
    for part, at in zip(met, (0, 1), strict=True):
        numbers, rows = np.unique(part, return_index=True)
        found = map_rows(_policy_log_probs, dataset, policy, actions, index=rows)[at]
        made[numbers] = np.exp(found.astype(np.float64))
    return made / made.sum(1, keepdims=True)


def _policy_log_probs(policy: Policy, actions: int, record: Record) -> tuple[Array, Array]:
    return action_log_probs(policy, record.obs, actions), action_log_probs(
        policy, record.next_obs, actions
    )
