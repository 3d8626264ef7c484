"""EnvPool's spaces as agents see them: 32 bits in place of 64, vectors of integers as choices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces


def dtype_of_32_bits(dtype: Any) -> Any:
    """Return the dtype, or for one of 64 bits its counterpart of 32 bits."""
    if dtype.itemsize != 8:
        return dtype
    return {"f": jnp.float32, "i": jnp.int32, "u": jnp.uint32}[dtype.kind]


def space_of_32_bits(space: Any) -> Any:
    """Return the same space with boxes of 32 bits in place of those of 64."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: space_of_32_bits(part) for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([space_of_32_bits(part) for part in space])
    if not isinstance(space, spaces.Box):
        return space
    dtype = np.dtype(dtype_of_32_bits(space.dtype))
    low, high = _cast_bound(space.low, dtype), _cast_bound(space.high, dtype)
    if dtype.kind == "f":  # EnvPool writes "no lower bound" as 0 or the least number above
        low = np.where((low >= 0.0) & (high >= np.finfo(dtype).max), -high, low)
    return spaces.Box(low, high, dtype=dtype)


def is_integer_vector(space: spaces.Space[Any]) -> bool:
    """Whether a space is a vector of integers: EnvPool's way to declare several choices."""
    return isinstance(space, spaces.Box) and space.dtype.kind in "iu" and len(space.shape) == 1


def agent_action_space(space: Any) -> Any:
    """Return the action space as agents see it."""
    if is_integer_vector(space):
        return spaces.MultiDiscrete(space.high.astype(np.int64) - space.low + 1)
    return space_of_32_bits(space)


def _cast_bound(bound: np.ndarray, dtype: Any) -> np.ndarray:
    """Cast a bound to a smaller dtype, which may not hold it."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # larger values become infinite
            return bound.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(bound, limits.min, limits.max).astype(dtype)
