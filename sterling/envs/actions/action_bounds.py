"""Scale actions from the agent's [-1, 1] to an environment's bounds; wide boxes are unbounded."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.envs.hosted.shared_memory import plain_space

MAX_ACTION_RANGE = 1e6  # between an action's bounds; wider boxes count as unbounded


def agent_action_space(space: Any) -> Any:
    """Return an action space as agents see it: choices counted from 0, float64 as float32."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: agent_action_space(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([agent_action_space(part) for part in space.spaces])
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec)
    if isinstance(space, spaces.Box) and space.dtype == np.float64:
        return plain_space(space, single=True)
    return space


def bounded_space(space: Any, bound: float) -> Any:
    """Return an action space in which every open side of a box has an end: ``-bound`` or ``bound``,
    or ``2 bound`` from the other side if that has one. Ends beyond half of ``MAX_ACTION_RANGE``
    count as none."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: bounded_space(part, bound) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([bounded_space(part, bound) for part in space.spaces])
    if not isinstance(space, spaces.Box):
        return space
    low, high = (np.asarray(end, np.float64) for end in (space.low, space.high))
    no_low, no_high = low < -MAX_ACTION_RANGE / 2, high > MAX_ACTION_RANGE / 2
    new_low = np.where(no_low, np.where(no_high, -bound, high - 2.0 * bound), low)
    new_high = np.where(no_high, np.where(no_low, bound, low + 2.0 * bound), high)
    ends = (new_low.astype(space.dtype), new_high.astype(space.dtype))
    return spaces.Box(*ends, dtype=space.dtype)


def has_open_side(space: Any) -> bool:
    """Whether a box has a side without an end."""
    return isinstance(space, spaces.Box) and not is_bounded(space)


def to_env_action(space: Any, action: np.ndarray) -> np.ndarray:
    """Convert an agent's actions for one leaf, with any leading axes, to the environment's values
    and type: the inverse of ``agent_action_space``."""
    if isinstance(space, spaces.Box):
        return clip_to_box(space, action)
    return action.astype(space.dtype) + np.asarray(getattr(space, "start", 0), space.dtype)


def clip_to_box(space: spaces.Box, action: np.ndarray) -> np.ndarray:
    """Clip actions, with any leading axes, to a box and cast them to its type, rounded if it holds
    integers.

    Integers are clipped before they are cast, because that cast wraps around and truncates.
    """
    low, high = space.low, space.high
    if space.dtype.kind == "f":
        # cast first: rounding to the box's type may leave the bounds
        return np.clip(action.astype(space.dtype), low, high)
    rounded = np.rint(np.asarray(action, np.float64))
    with np.errstate(invalid="ignore"):  # values beyond the type are replaced below
        cast = rounded.astype(space.dtype)
    return np.where(rounded <= low, low, np.where(rounded >= high, high, cast))


def is_bounded(space: spaces.Space[Any]) -> bool:
    """Whether agents act in [-1, 1] for ``space``: a numeric box whose bounds are finite in float32
    and at most ``MAX_ACTION_RANGE`` apart.

    Wider bounds, such as the limits of a type, are ignored: scaled from [-1, 1], almost every
    action would be huge or infinite.
    """
    if not isinstance(space, spaces.Box) or space.dtype.kind not in "fiu":
        return False
    low, high = (np.asarray(end, np.float64) for end in (space.low, space.high))
    largest = np.finfo(np.float32).max
    finite = (np.abs(low) <= largest) & (np.abs(high) <= largest)
    return bool(finite.all() and (high - low <= MAX_ACTION_RANGE).all())
