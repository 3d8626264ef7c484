"""Check the numbers of an observation, from an environment or for a policy."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

NOT_FINITE = "holds NaN or infinity"


def cast_leaf(space: spaces.Space[Any], value: np.ndarray) -> np.ndarray:
    """Return one part of an observation, of the space's shape, in the space's type. Raise
    ValueError, in words that follow the part's name, for numbers that do not fit: NaN, infinity,
    fractions where the space has whole numbers, numbers outside the type or the choices."""
    dtype: Any = space.dtype
    if value.dtype.kind not in "biuf":
        raise ValueError(f"has type {value.dtype}, but the observation space says {dtype}")
    made = value
    if value.dtype != dtype:
        if dtype.kind in "iu":
            _check_whole(space, value)
        with np.errstate(over="ignore"):  # what is too large is found as infinity
            made = value.astype(dtype)
    if dtype.kind == "f" and not np.isfinite(made).all():
        raise ValueError(NOT_FINITE)
    if not isinstance(space, spaces.Box) and not space.contains(made[()]):
        raise ValueError(f"is {value}, outside {space}")
    return made


def outside_space(space: spaces.Space[Any], values: np.ndarray) -> np.ndarray:
    """Return which numbers of a part of observations, with any leading axes, lie outside the
    bounds or choices of its space by more than rounding."""
    low, high = _space_bounds(space)
    slack = 1e-5 * (1.0 + np.abs(values)) if values.dtype.kind == "f" else 0
    found: np.ndarray = (values < low - slack) | (values > high + slack)
    return found


def _space_bounds(space: Any) -> tuple[Any, Any]:
    if hasattr(space, "low"):
        return space.low.astype(np.float64), space.high.astype(np.float64)
    start = getattr(space, "start", 0)
    is_discrete = hasattr(space, "n") and space.shape == ()
    return start, start + (space.n if is_discrete else getattr(space, "nvec", 2)) - 1


def _check_whole(space: spaces.Space[Any], value: np.ndarray) -> None:
    """Raise ValueError for fractions, and for numbers outside an integer type."""
    limits = np.iinfo(space.dtype)
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ValueError(NOT_FINITE)
    is_outside = value.size and (value.min() < limits.min or value.max() > limits.max)
    if is_outside or (value.dtype.kind == "f" and (value != np.floor(value)).any()):
        kind = f"whole numbers from {limits.min} to {limits.max}"
        is_picture = limits.max == 255 and not is_outside and value.max() <= 1
        remedy = ". Do not divide pictures by 255: that is done for you" if is_picture else ""
        raise ValueError(f"must hold {kind}, as its space says ({space.dtype}){remedy}")
