"""What a Gymnasium environment reports beside a reward of one number: in ``info``, or by a reward
that is a vector. Like ``seat`` this imports nothing slow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sterling.agents import REWARD
from sterling.envs.board import Board, Problem, Violation

OBJECTIVES = "objectives"  # the channel of a reward that is a vector


def found(
    names: tuple[str, ...],
    weights: tuple[float, ...],
    reward: Any,
    info: dict[str, Any],
    agents: tuple[str, ...] = (),
) -> tuple[tuple[tuple[str, int], ...], tuple[float, ...]]:
    """The channels as ``Problem.channels`` says them, and the weights of a reward's entries (1
    each where none are given), after a first step that answered ``reward`` and ``info``. A vector
    has an entry for each of ``agents``, or where there are none for each objective."""
    vector, called = np.ndim(reward) == 1, REWARD if agents else OBJECTIVES
    given = {**({called: reward} if vector else {}), **{n: info.get(n, 0.0) for n in names}}
    if vector:
        given[called] = reward
    if weights and agents:
        raise Violation("reward_weights are of objectives; of agents the sum of all is the reward")
    if weights and len(weights) != np.size(reward):
        raise Violation(
            f"reward_weights are {len(weights)} numbers and the reward has {np.size(reward)}; give "
            "one weight for each"
        )
    sizes = tuple(
        (name, _numbers(name, value).size * np.ndim(value)) for name, value in given.items()
    )
    return sizes, (weights or (1.0,) * len(reward)) if vector else ()


def write(problem: Problem, board: Board, index: int, reward: Any, info: dict[str, Any]) -> None:
    """Write a step's reward, of vectors the weighted sum, and its channels to row ``index``."""
    weights = problem.weights
    if np.shape(reward) != ((len(weights),) if weights else ()):
        raise Violation(
            f"step() returned a reward of shape {np.shape(reward)}, unlike the first one"
        )
    board["reward"][index] = np.dot(reward, weights) if weights else reward
    for number, (name, entries) in enumerate(problem.channels):
        is_reward = bool(weights) and name == (REWARD if problem.agents else OBJECTIVES)
        board["missing"][index, number] = not is_reward and name not in info
        value = _numbers(name, reward if is_reward else info.get(name, np.zeros(entries or ())))
        if value.shape != ((entries,) if entries else ()):
            raise Violation(
                f"info[{name!r}] is of shape {value.shape}, unlike that of the first step; keep to "
                "one form"
            )
        board[f"channel{number}"][index] = value


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value, np.float32)
    except (TypeError, ValueError):
        raise Violation(f"info[{name!r}] is {value!r:.60}; a channel holds numbers") from None
    if array.ndim > 1 or not np.isfinite(array).all():
        raise Violation(f"info[{name!r}] is {value!r:.60}; give a finite number or a row of them")
    return array
