"""Spaces as JSON in Minari's form, the names of their parts, and actions as worlds take them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.envs.board import as_seen, is_bounded, leaves, plain, seen, within
from sterling.types import Mistake

Space = spaces.Space[Any]
AnyBound = float | np.ndarray
UNBOUNDED = (-np.inf, np.inf)
NO_COLUMNS = (
    "cannot be learned from; use Box, Discrete, MultiDiscrete, MultiBinary, or a Dict/Tuple of them"
)
NARROW, ROUNDING = 1e-3, 1e-5  # relative: room around a number that differs by no more than that


def parts(kind: str, space: Space) -> dict[str, Space]:
    """Column name -> space of every part: "obs", or "obs/hand/position" inside a Dict or Tuple.

    They come in the order of ``jax.tree.leaves``. Raises Mistake for spaces that have no arrays
    of one shape (Text, Graph, Sequence), and for keys that hold a slash.
    """
    found: dict[str, Space] = {}
    for path, leaf in leaves(space):
        words = [str(key) for key in path]
        if any("/" in word for word in words):
            raise Mistake(f"the key {'/'.join(words)!r} of a space holds a slash; rename it")
        name = "/".join([kind, *words])
        if not isinstance(leaf, (spaces.Box, spaces.Discrete, *MULTI)):
            raise Mistake(f"{name} is of type {type(leaf).__name__}, which {NO_COLUMNS}")
        found[name] = leaf
    return found


MULTI = (spaces.MultiDiscrete, spaces.MultiBinary)


def to_json(space: Space) -> dict[str, Any]:
    """A space as plain values, as Minari writes them."""
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
        return {"type": "Dict", "subspaces": {k: to_json(v) for k, v in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "subspaces": [to_json(part) for part in space.spaces]}
    raise Mistake(f"a space of type {type(space).__name__} cannot be written")


def from_json(said: dict[str, Any], name: str = "a space") -> Space:
    """The inverse of :func:`to_json`; ``name`` is what a Mistake calls it."""
    kind = said.get("type")
    if kind == "Box":
        low, high = (np.array(said[end], said["dtype"]) for end in ("low", "high"))
        shape = tuple(said["shape"])
        return spaces.Box(low.reshape(shape), high.reshape(shape), dtype=np.dtype(said["dtype"]))
    if kind == "Discrete":
        return spaces.Discrete(said["n"], start=said["start"])
    if kind == "MultiDiscrete":
        nvec = np.array(said["nvec"], dtype=np.int64)
        start = said.get("start", np.zeros_like(nvec))
        return spaces.MultiDiscrete(nvec, dtype=np.dtype(said["dtype"]), start=start)
    if kind == "MultiBinary":
        return spaces.MultiBinary(said["n"])
    if kind == "Dict":
        named = said["subspaces"].items()
        return spaces.Dict({key: from_json(part, f"{name}/{key}") for key, part in named})
    if kind == "Tuple":
        numbered = enumerate(said["subspaces"])
        return spaces.Tuple([from_json(part, f"{name}/{key}") for key, part in numbered])
    raise Mistake(f"{name} is of type {kind}, which {NO_COLUMNS}")


def guessed(kind: str, array: Any, low: AnyBound = -np.inf, high: AnyBound = np.inf) -> Space:
    """A space for a column that came without one; ``low`` and ``high`` are its extreme values, as
    :func:`extremes` finds them.

    Whole numbers are choices, and truths are two. Actions within [-1, 1] (and a rounding error) get
    these bounds and other actions their own extremes, number by number: policies act within bounds
    only. Of observations no bounds are known.
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
    low, high = _bounds(low, high, shape, real) if kind == "action" else UNBOUNDED
    return spaces.Box(low, high, shape, real)


def _bounds(low: AnyBound, high: AnyBound, shape: tuple[int, ...], real: Any) -> tuple[Any, Any]:
    """Bounds of actions that are measured."""
    if np.max(high) <= 1.0 + 1e-6 and np.min(low) >= -1.0 - 1e-6:
        return -1.0, 1.0
    if not np.all(np.less_equal(low, high)):  # there is no number that is finite
        return UNBOUNDED
    least, most = (np.broadcast_to(end, shape).astype(real) for end in _apart(low, high))
    return least, most


def _apart(low: AnyBound, high: AnyBound) -> tuple[np.ndarray, np.ndarray]:
    """Bounds with room between them: a number that never changes lies in their middle, as an agent
    has it 0 then, and not on an edge."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    room = NARROW * np.maximum(np.abs(low), 1.0)
    constant = high - low <= ROUNDING * np.abs(low)
    return np.where(constant, low - room, low), np.where(constant, high + room, high)


def extremes(columns: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest finite number at every place of a row, over all rows; infinite
    the wrong way round where there is none."""
    low, high = np.asarray(np.inf), np.asarray(-np.inf)
    for column in columns:
        rows = np.asarray(column, np.float64)
        known = np.isfinite(rows)
        low = np.asarray(np.minimum(low, rows.min(0, where=known, initial=np.inf)))
        high = np.asarray(np.maximum(high, rows.max(0, where=known, initial=-np.inf)))
    return low, high


def is_seen(space: Space) -> bool:
    """Whether guessed bounds of actions are their own extremes."""
    units = isinstance(space, spaces.Box) and (space.high == 1).all() and (space.low == -1).all()
    return has_edges(space) and not units


def common(guesses: Sequence[Space]) -> Space | None:
    """The smallest space that holds those of several guesses; None where they are of other kinds,
    shapes or types."""
    first = guesses[0]
    if any((type(x), x.shape, x.dtype) != (type(first), first.shape, first.dtype) for x in guesses):
        return None
    boxes = [each for each in guesses if isinstance(each, spaces.Box)]
    if boxes:
        low, high = (np.stack([getattr(x, end) for x in boxes]) for end in ("low", "high"))
        return spaces.Box(low.min(0), high.max(0), dtype=boxes[0].dtype.type)
    return max(guesses, key=lambda each: int(np.max(getattr(each, "n", getattr(each, "nvec", 0)))))


def is_rescaled(space: Space) -> bool:
    """Whether worlds rescale this action space to [-1, 1]: a box with bounds that are finite and
    not too far apart."""
    return is_bounded(space)


def has_edges(space: Space) -> bool:
    """Whether actions may lie on a bound by having been clipped: those of rescaled real numbers.
    Integers are nowhere but on whole numbers."""
    return is_rescaled(space) and not is_whole(space)


def is_whole(space: Space) -> bool:
    """Whether a space holds integers only."""
    return np.dtype(space.dtype).kind in "iu"


def of_agent(space: Space) -> Space:
    """An action space as an agent sees it: bounded boxes in [-1, 1], choices from 0."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: of_agent(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([of_agent(part) for part in space.spaces])
    if is_rescaled(space):
        return spaces.Box(-1.0, 1.0, space.shape, np.float32)
    return seen(space)


def obs_of_agent(space: Space) -> Space:
    """An observation space as an agent sees it: float64, and integers that 32 bits do not hold, as
    float32."""
    return plain(space, single=True)


def as_agent_sees(space: Space, obs: np.ndarray) -> np.ndarray:
    """Stored observations of one part in numbers of at most 32 bits; see :func:`obs_of_agent`."""
    return single(as_seen(obs_of_agent(space), obs))


def as_agent_acts(space: Space, action: np.ndarray) -> np.ndarray:
    """Stored actions of one part as an agent would have given them; see :func:`of_agent`."""
    if is_rescaled(space):
        assert isinstance(space, spaces.Box)
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        middle, half = (low + high) / 2, (high - low) / 2
        return (action.astype(np.float32) - middle) / np.where(half > 0, half, 1)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return (action - space.start).astype(np.int32)
    return action.astype(np.float32) if isinstance(space, spaces.Box) else single(action)


def units(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Where an agent's 0 lies among actions as they are stored, and how much its 1 is there: the
    middle and half the range of a rescaled box (1 of a number that cannot change), else 0 and 1."""
    if not is_rescaled(space):
        return np.zeros(()), np.ones(())
    assert isinstance(space, spaces.Box)
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    return (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)


def as_stored_acts(space: Space, action: np.ndarray) -> np.ndarray:
    """The inverse of :func:`as_agent_acts`: in the environment's units, type and bounds."""
    if isinstance(space, spaces.Box):
        made = np.asarray(action, np.float64)
        if is_rescaled(space):
            low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
            made = (low + high) / 2 + made * (high - low) / 2
        return within(space, made)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return (np.asarray(action) + space.start).astype(space.dtype)
    return np.asarray(action).astype(space.dtype)


def single(array: np.ndarray) -> np.ndarray:
    """The same numbers in at most 32 bits, as JAX has them."""
    kinds = {"f": np.float32, "i": np.int32, "u": np.uint32}
    if array.dtype.kind in kinds and (array.dtype.itemsize > 4 or array.dtype == np.float16):
        return array.astype(kinds[array.dtype.kind])
    return array
