"""Rows of items, padded to a stated maximum: the items of a sequence, a graph's nodes, its edges.

This file runs inside worker processes, so it imports nothing slow (no JAX).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, flatten_space

from sterling.envs.hosted.shared_memory import ContractViolation


def padded_rows_space(item: Any, most: int, owner: str) -> spaces.Space[Any]:
    """Return the space of ``most`` items, padding included. An item that is neither a Box nor a
    Discrete is flattened to one row of numbers, its choices one-hot. Raises
    :class:`ContractViolation`, which names the space ``owner``, if it cannot be."""
    if isinstance(item, spaces.Discrete):
        return spaces.MultiDiscrete([int(item.n)] * most, start=[int(item.start)] * most)
    if not isinstance(item, spaces.Box):
        if not item.is_np_flattenable:
            said = "Use items of fixed size, such as Box, Discrete, or a Dict of them"
            raise ContractViolation(
                f"observation_space has a {owner} of {type(item).__name__}. {said}"
            )
        item = flatten_space(item)
    low, high = np.minimum(item.low, 0), np.maximum(item.high, 0)  # padding is 0
    bounds = [np.stack([bound] * most).astype(item.dtype) for bound in (low, high)]
    return spaces.Box(bounds[0], bounds[1], dtype=item.dtype.type)


def pad_rows(rows_space: Any, item: Any, items: Any, noun: str, option: str) -> np.ndarray:
    """Return items as an array of ``rows_space``, padding last. ``noun`` (one of them) and
    ``option`` (what states the maximum) are for messages. Raises :class:`ContractViolation` for
    too many items, and for one of another shape."""
    most, shape = rows_space.shape[0], rows_space.shape[1:]
    if len(items) > most:
        raise ContractViolation(
            f"an observation holds {len(items)} {noun}s, more than {option}={most}. Use --env "
            f"{option}={len(items)} or more"
        )
    start = getattr(rows_space, "start", np.zeros((), rows_space.dtype))
    rows = np.zeros(rows_space.shape, rows_space.dtype) + start
    is_row = isinstance(item, spaces.Box | spaces.Discrete)
    for index, each in enumerate(items):
        value: Any = each if is_row else flatten(item, each)
        if np.shape(value) != shape:
            said = f"but observation_space says {shape}"
            raise ContractViolation(f"{noun} {index} has shape {np.shape(value)}, {said}")
        rows[index] = value
    return rows
