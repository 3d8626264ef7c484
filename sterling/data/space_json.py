"""Spaces of datasets: as JSON in Minari's form, as columns, guessed from data, in agent units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.envs.actions.action_bounds import agent_action_space, clip_to_box, is_bounded
from sterling.envs.hosted.shared_memory import cast_observations, plain_space, space_leaves
from sterling.problem.joined_path import joined_path
from sterling.types import Mistake

Space = spaces.Space[Any]
AnyBound = float | np.ndarray
UNBOUNDED = (-np.inf, np.inf)
UNSUPPORTED_SPACE = (
    "is not supported. Use Box, Discrete, MultiDiscrete, MultiBinary, or a Dict/Tuple of them."
)
CONSTANT_MARGIN, CONSTANT_TOLERANCE = (
    1e-3,
    1e-5,
)  # relative: margin around a number that varies by at most ROUNDING


def column_spaces(kind: str, space: Space) -> dict[str, Space]:
    """Map each column name to its space: "obs", or "obs/hand/position" inside a Dict or Tuple.

    The order is that of ``jax.tree.leaves``. A slash inside a key is written ~1 (see
    ``joined_path``). Raises Mistake for spaces whose values are not arrays of one shape (Text,
    Graph, Sequence).
    """
    found: dict[str, Space] = {}
    for path, leaf in space_leaves(space):
        name = joined_path([kind, *path])
        if not isinstance(leaf, (spaces.Box, spaces.Discrete, *MULTI_SPACES)):
            raise Mistake(f"The space {type(leaf).__name__} of {name!r} {UNSUPPORTED_SPACE}")
        found[name] = leaf
    return found


MULTI_SPACES = (spaces.MultiDiscrete, spaces.MultiBinary)


def space_to_json(space: Space) -> dict[str, Any]:
    """Return a space as plain values, as Minari writes them."""
    if isinstance(space, spaces.Box):
        bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
        return {"type": "Box", "dtype": str(space.dtype), "shape": list(space.shape), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "dtype": "int64", "start": int(space.start), "n": int(space.n)}
    if isinstance(space, spaces.MultiDiscrete):
        rest = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"type": "MultiDiscrete", "dtype": str(space.dtype), **rest}
    if isinstance(space, spaces.MultiBinary):
        size = space.n if isinstance(space.n, (int, np.integer)) else list(space.n)
        return {"type": "MultiBinary", "n": size}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "subspaces": {k: space_to_json(v) for k, v in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "subspaces": [space_to_json(part) for part in space.spaces]}
    raise Mistake(f"A space of type {type(space).__name__} {UNSUPPORTED_SPACE}")


def space_from_json(stored: dict[str, Any], name: str = "a space") -> Space:
    """Return the space that :func:`space_to_json` wrote; messages call it ``name``."""
    kind = stored.get("type")
    if kind == "Box":
        low, high = (np.array(stored[end], stored["dtype"]) for end in ("low", "high"))
        shape = tuple(stored["shape"])
        return spaces.Box(low.reshape(shape), high.reshape(shape), dtype=np.dtype(stored["dtype"]))
    if kind == "Discrete":
        return spaces.Discrete(stored["n"], start=stored["start"])
    if kind == "MultiDiscrete":
        nvec = np.array(stored["nvec"], dtype=np.int64)
        start = stored.get("start", np.zeros_like(nvec))
        return spaces.MultiDiscrete(nvec, dtype=np.dtype(stored["dtype"]), start=start)
    if kind == "MultiBinary":
        return spaces.MultiBinary(stored["n"])
    if kind == "Dict":
        named = stored["subspaces"].items()
        return spaces.Dict({key: space_from_json(part, f"{name}/{key}") for key, part in named})
    if kind == "Tuple":
        numbered = enumerate(stored["subspaces"])
        return spaces.Tuple([space_from_json(part, f"{name}/{key}") for key, part in numbered])
    raise Mistake(f"The type {kind} of {name} {UNSUPPORTED_SPACE}")


def guess_space(kind: str, array: Any, low: AnyBound = -np.inf, high: AnyBound = np.inf) -> Space:
    """Guess the space of a column from its numbers; ``low`` and ``high`` are its extreme values, as
    :func:`finite_extremes` returns them.

    Integer actions are discrete, and booleans have two values. Real actions within [-1, 1] (up to
    rounding) get these bounds, other actions their own extremes, component by component, because
    policies act only within bounds. Real observations get no bounds.
    """
    shape, dtype = tuple(array.shape[1:]), np.dtype(array.dtype)
    if dtype.kind in "iub" and kind == "action" and np.min(low) >= 0:
        count = 2 if dtype.kind == "b" else int(np.max(high)) + 1
        if shape in ((), (1,)):
            return spaces.Discrete(count)
        return spaces.MultiDiscrete(np.full(shape, count))
    if dtype == np.uint8:
        return spaces.Box(0, 255, shape, np.uint8)
    if dtype.kind in "iu":
        return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype.type)
    real = dtype.type if dtype.kind == "f" else np.float32
    low, high = _measured_bounds(low, high, shape, real) if kind == "action" else UNBOUNDED
    return spaces.Box(low, high, shape, real)


def _measured_bounds(
    low: AnyBound, high: AnyBound, shape: tuple[int, ...], real: Any
) -> tuple[Any, Any]:
    """Return guessed bounds for real actions: [-1, 1] if they lie inside, else their extremes."""
    if np.max(high) <= 1.0 + 1e-6 and np.min(low) >= -1.0 - 1e-6:
        return -1.0, 1.0
    if not np.all(np.less_equal(low, high)):  # no number is finite
        return UNBOUNDED
    least, most = (np.broadcast_to(end, shape).astype(real) for end in _widen_constants(low, high))
    return least, most


def _widen_constants(low: AnyBound, high: AnyBound) -> tuple[np.ndarray, np.ndarray]:
    """Widen the bounds of components that never change, so that their value lies in the middle:
    an agent then sees 0, and not a bound."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    room = CONSTANT_MARGIN * np.maximum(np.abs(low), 1.0)
    constant = high - low <= CONSTANT_TOLERANCE * np.abs(low)
    return np.where(constant, low - room, low), np.where(constant, high + room, high)


def finite_extremes(columns: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest finite number of each component over all rows; (inf, -inf)
    where no number is finite."""
    low, high = np.asarray(np.inf), np.asarray(-np.inf)
    for column in columns:
        rows = np.asarray(column, np.float64)
        known = np.isfinite(rows)
        low = np.asarray(np.minimum(low, rows.min(0, where=known, initial=np.inf)))
        high = np.asarray(np.maximum(high, rows.max(0, where=known, initial=-np.inf)))
    return low, high


def is_bounded_by_data(space: Space) -> bool:
    """Whether the bounds of a guessed action space are the extremes of its data."""
    units = isinstance(space, spaces.Box) and (space.high == 1).all() and (space.low == -1).all()
    return is_clippable(space) and not units


def smallest_common_space(guesses: Sequence[Space]) -> Space | None:
    """Return the smallest space that contains all guesses; None if they differ in kind, shape or
    dtype."""
    first = guesses[0]
    if any((type(x), x.shape, x.dtype) != (type(first), first.shape, first.dtype) for x in guesses):
        return None
    boxes = [each for each in guesses if isinstance(each, spaces.Box)]
    if boxes:
        low, high = (np.stack([getattr(x, end) for x in boxes]) for end in ("low", "high"))
        return spaces.Box(low.min(0), high.max(0), dtype=boxes[0].dtype.type)
    return max(guesses, key=lambda each: int(np.max(getattr(each, "n", getattr(each, "nvec", 0)))))


def is_rescaled(space: Space) -> bool:
    """Whether environments rescale this action space to [-1, 1]: a box whose bounds are finite and
    not too far apart."""
    return is_bounded(space)


def is_clippable(space: Space) -> bool:
    """Whether actions may lie on a bound because they were clipped: rescaled real numbers, but not
    integers, which lie on their bounds anyway."""
    return is_rescaled(space) and not is_integer(space)


def is_integer(space: Space) -> bool:
    """Whether a space holds integers only."""
    return np.dtype(space.dtype).kind in "iu"


def action_space_for_agent(space: Space) -> Space:
    """Return an action space as an agent sees it: bounded boxes in [-1, 1], discrete from 0."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict(
            {key: action_space_for_agent(part) for key, part in space.spaces.items()}
        )
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([action_space_for_agent(part) for part in space.spaces])
    if is_rescaled(space):
        return spaces.Box(-1.0, 1.0, space.shape, np.float32)
    return agent_action_space(space)


def agent_obs_space(space: Space) -> Space:
    """Return an observation space as an agent sees it: float64, and integers beyond 32 bits,
    become float32."""
    return plain_space(space, single=True)


def to_agent_obs(space: Space, obs: np.ndarray) -> np.ndarray:
    """Convert one column of stored observations to numbers of at most 32 bits; see
    :func:`agent_obs_space`."""
    return to_32_bits(cast_observations(agent_obs_space(space), obs))


def to_agent_action(space: Space, action: np.ndarray) -> np.ndarray:
    """Convert one column of stored actions to an agent's units; see :func:`agent_action_space`."""
    if is_rescaled(space):
        assert isinstance(space, spaces.Box)
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        middle, half = (low + high) / 2, (high - low) / 2
        return (action.astype(np.float32) - middle) / np.where(half > 0, half, 1)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return (action - space.start).astype(np.int32)
    return action.astype(np.float32) if isinstance(space, spaces.Box) else to_32_bits(action)


def action_units(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return the offset and scale from an agent's units to stored units: the middle and half the
    range of a rescaled box (scale 1 for a component that cannot change), else 0 and 1."""
    if not is_rescaled(space):
        return np.zeros(()), np.ones(())
    assert isinstance(space, spaces.Box)
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    return (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)


def to_stored_action(space: Space, action: np.ndarray) -> np.ndarray:
    """Convert an agent's actions to the environment's units, dtype and bounds; the inverse of
    :func:`to_agent_action`."""
    if isinstance(space, spaces.Box):
        made = np.asarray(action, np.float64)
        if is_rescaled(space):
            low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
            made = (low + high) / 2 + made * (high - low) / 2
        return clip_to_box(space, made)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return (np.asarray(action) + space.start).astype(space.dtype)
    return np.asarray(action).astype(space.dtype)


def fits_float32(array: np.ndarray) -> np.ndarray:
    """Return which numbers are finite as float32: neither NaN nor infinite, nor too large."""
    largest = np.finfo(np.float32).max if array.dtype == np.float64 else np.inf
    return np.asarray(np.isfinite(array) & (np.abs(array) <= largest))


def to_32_bits(array: np.ndarray) -> np.ndarray:
    """Convert an array to at most 32 bits, as JAX stores numbers; float16 becomes float32."""
    kinds = {"f": np.float32, "i": np.int32, "u": np.uint32}
    if array.dtype.kind in kinds and (array.dtype.itemsize > 4 or array.dtype == np.float16):
        return array.astype(kinds[array.dtype.kind])
    return array
