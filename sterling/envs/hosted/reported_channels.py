"""What a Gymnasium environment reports beside a scalar reward: entries of ``info``, or a vector
reward.

Workers import this file, so it imports nothing slow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sterling.envs.hosted.shared_memory import (
    LARGEST_NUMBER,
    ContractViolation,
    EnvDescription,
    SharedArrays,
    read_numbers,
)
from sterling.problem.agent_axis import REWARD

OBJECTIVES = "objectives"  # the channel of a vector reward


def infer_channels(
    names: tuple[str, ...],
    weights: tuple[float, ...],
    reward: Any,
    info: dict[str, Any],
    agents: tuple[str, ...] = (),
) -> tuple[tuple[tuple[str, int], ...], tuple[float, ...]]:
    """Infer an environment's channels and reward weights from the ``reward`` and ``info`` of its
    first step.

    The channels are in the form of ``EnvDescription.channels``. The weights of a vector reward are
    1 each if none are given; a scalar reward has none. A vector has one entry per agent in
    ``agents``, or one per objective if there are no agents.
    """
    vector, called = np.ndim(reward) == 1, REWARD if agents else OBJECTIVES
    given = {**({called: reward} if vector else {}), **{n: info.get(n, 0.0) for n in names}}
    if vector:
        given[called] = reward
    if weights and agents:
        raise ContractViolation(
            "reward_weights are for objectives. Leave them out: the rewards of several agents "
            "are summed"
        )
    if weights and len(weights) != np.size(reward):
        raise ContractViolation(
            f"reward_weights has {len(weights)} numbers, but the reward has {np.size(reward)}. "
            "Give one weight per entry"
        )
    sizes = tuple(
        (name, _channel_array(name, value).size * np.ndim(value)) for name, value in given.items()
    )
    return sizes, (weights or (1.0,) * len(reward)) if vector else ()


def write_step(
    description: EnvDescription, shared: SharedArrays, index: int, reward: Any, info: dict[str, Any]
) -> None:
    """Write a step's reward and channels to row ``index``; of a vector reward the weighted sum."""
    weights = description.weights
    if np.shape(reward) != ((len(weights),) if weights else ()):
        raise ContractViolation(
            f"step() returned a reward of shape {np.shape(reward)}, unlike the first step's. "
            "Return the same shape at every step"
        )
    total = np.dot(reward, weights) if weights else reward
    if not abs(total) <= LARGEST_NUMBER:
        raise ContractViolation(
            f"the weighted sum of the reward {reward} is {total:.4g}, beyond the "
            f"{LARGEST_NUMBER:.3g} of float32. Give smaller rewards"
        )
    shared["reward"][index] = total
    for number, (name, entries) in enumerate(description.channels):
        is_reward = bool(weights) and name == (REWARD if description.agents else OBJECTIVES)
        shared["missing"][index, number] = not is_reward and name not in info
        value = _channel_array(
            name, reward if is_reward else info.get(name, np.zeros(entries or ()))
        )
        if value.shape != ((entries,) if entries else ()):
            raise ContractViolation(
                f"info[{name!r}] has shape {value.shape}, unlike in the first step. Give the same "
                "shape at every step"
            )
        shared[f"channel{number}"][index] = value


def _channel_array(name: str, value: Any) -> np.ndarray:
    array = read_numbers(value, f"info[{name!r}] is").astype(np.float32)
    if array.ndim > 1:
        raise ContractViolation(
            f"info[{name!r}] is {value!r:.60}. A channel must be a number or a vector of numbers"
        )
    return array
