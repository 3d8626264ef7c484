"""A log of observations alone, as a log with goals: what was observed is what was achieved."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.data.dataset import Dataset
from sterling.problem.goal_obs import ACHIEVED, DESIRED, OBSERVATION, has_goals


def lacks_goals(own: spaces.Space[Any], given: spaces.Space[Any]) -> bool:
    """Whether a log observes, in the space ``own``, what the world with goals ``given`` has as its
    observation and as its goals."""
    if not (isinstance(own, spaces.Box) and has_goals(given) and isinstance(given, spaces.Dict)):
        return False
    shapes = {part.shape for part in given.spaces.values()}
    return set(given.spaces) == {OBSERVATION, ACHIEVED, DESIRED} and shapes == {own.shape}


def with_goal_columns(log: Dataset) -> Dataset:
    """Return the log with each observation also as the achieved goal. Desired goals are unknown,
    and 0. No array is copied."""
    (block,) = log.blocks(max(log.rows, 1))
    arrays = {name: array for name, array in block.arrays.items() if name != "obs"}
    seen = block.arrays["obs"]
    arrays[f"obs/{OBSERVATION}"] = arrays[f"obs/{ACHIEVED}"] = seen
    arrays[f"obs/{DESIRED}"] = np.broadcast_to(np.zeros((), seen.dtype), seen.shape)
    space = spaces.Dict(dict.fromkeys((OBSERVATION, ACHIEVED, DESIRED), log.obs_space))
    made = Dataset.from_block(
        dataclasses.replace(block, arrays=arrays), space, log.action_space, log.facts
    )
    made.path, made.mapped = log.path, log.mapped
    return made
