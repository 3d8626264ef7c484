"""The board that workers and the trainer share: one row per environment, in one block of memory.

The trainer writes orders and actions, the workers write the answers. Every part of an observation
or action is an array of its own: ``obs0``, ``obs1``... in the order of ``jax.tree.leaves``.
"""

from __future__ import annotations

import functools
import math
import mmap
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

SKIP, STEP, RESET, BUILD = range(4)  # orders: BUILD constructs the environment anew and seeds it
MASK, PROPER = "action_mask", "observation"  # entries of the observation where actions are masked
WIDEST = 1e6  # from a bound of an action to the other

Board = dict[str, np.ndarray]
Path = tuple[Any, ...]
# names in ``info`` that are reported, and weights of the entries of a reward that is a vector
Asked = tuple[tuple[str, ...], tuple[float, ...]]


class Violation(Exception):
    """The environment breaks Gymnasium's contract."""


class NoneMade(Violation):
    """What a factory returned is no Gymnasium environment."""


class Problem(NamedTuple):
    """What an environment turned out to be."""

    obs: spaces.Space[Any]  # as Sterling sees it: float32, with the action mask where there is one
    action: spaces.Space[Any]  # the environment's own
    mask: str = ""  # where the mask of allowed actions comes from: "", "method" or "info"
    wrap: bool = False  # the observation proper lies beside the mask, under PROPER
    channels: tuple[tuple[str, int], ...] = ()  # what is reported: name, entries (0: one number)
    weights: tuple[float, ...] = ()  # of the entries of a reward that is a vector
    agents: tuple[str, ...] = ()  # whose those entries are, where there are several
    unseen: Any = ()  # entries of observations that only critics get, as the environment says it


def leaves(space: spaces.Space[Any], path: Path = ()) -> list[tuple[Path, spaces.Space[Any]]]:
    """The space's parts and the way to each, in the order of ``jax.tree.leaves``."""
    if isinstance(space, spaces.Dict):
        parts: Any = sorted(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = enumerate(space.spaces)
    else:
        return [(path, space)]
    return [leaf for key, part in parts for leaf in leaves(part, (*path, key))]


def tree(space: spaces.Space[Any], parts: Iterator[Any]) -> Any:
    """The inverse of ``leaves``: ``parts`` arranged as ``space`` is."""
    if isinstance(space, spaces.Dict):
        return {key: tree(part, parts) for key, part in sorted(space.spaces.items())}
    if isinstance(space, spaces.Tuple):
        return tuple(tree(part, parts) for part in space.spaces)
    return next(parts)


def board_of(problem: Problem, envs: int, workers: int, memory: int | None = None) -> Board:
    """The arrays of ``envs`` environments: in the open file ``memory``, or private if None."""
    fields: dict[str, tuple[tuple[int, ...], Any]] = {
        "order": ((envs,), np.uint8),
        "seed": ((envs,), np.int64),
        "reward": ((envs,), np.float32),
        "terminated": ((envs,), np.bool_),
        "truncated": ((envs,), np.bool_),
        "current": ((workers,), np.int64),  # the environment a worker is busy with, or -1
        "ticks": ((workers,), np.int64),  # orders taken up so far: shows that a worker moves
    }
    if problem.channels:
        fields["missing"] = ((envs, len(problem.channels)), np.bool_)  # from a step's info
    for number, (_, entries) in enumerate(problem.channels):
        fields[f"channel{number}"] = ((envs, *((entries,) if entries else ())), np.float32)
    for name, space in (("obs", problem.obs), ("action", problem.action)):
        for number, (_, leaf) in enumerate(leaves(space)):
            fields[f"{name}{number}"] = ((envs, *(leaf.shape or ())), leaf.dtype)
    offsets, size = {}, 0
    for name, (shape, dtype) in fields.items():
        offsets[name] = size
        size += -(-math.prod(shape) * np.dtype(dtype).itemsize // 64) * 64  # whole cache lines
    if memory is None:
        block: Any = bytearray(size)
    else:
        os.ftruncate(memory, size)
        block = mmap.mmap(memory, size)
    return {
        name: np.frombuffer(block, dtype, math.prod(shape), offsets[name]).reshape(shape)
        for name, (shape, dtype) in fields.items()
    }


def plain(space: Any, single: bool = False) -> Any:
    """The same space without a user's subclasses; with ``single``, boxes of float64, and of
    integers that 32 bits do not hold, become float32."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: plain(part, single) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([plain(part, single) for part in space.spaces])
    if isinstance(space, spaces.Box):
        dtype = np.float32 if single and _is_wide(space) else space.dtype
        return spaces.Box(space.low.astype(dtype), space.high.astype(dtype), dtype=dtype)
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec, dtype=space.dtype, start=space.start)
    return spaces.MultiBinary(space.n)


def _is_wide(space: spaces.Box) -> bool:
    """Whether JAX, which has 32 bits, would lose its numbers; integers would wrap silently."""
    if space.dtype.itemsize < 8 or space.dtype.kind == "f":
        return space.dtype == np.float64
    limits = np.iinfo(np.int32 if space.dtype.kind == "i" else np.uint32)
    return bool((space.low < limits.min).any() or (space.high > limits.max).any())


def as_seen(space: spaces.Space[Any], obs: Any) -> Any:
    """Observations, with any leading axes, in the types of their ``space`` as Sterling sees it:
    see :func:`plain`."""

    def part(path: Path, leaf: spaces.Space[Any]) -> Any:
        found = functools.reduce(lambda inside, key: inside[key], path, obs)
        is_real = found.dtype == np.float64 or leaf.dtype == np.float32
        return found.astype(np.float32) if is_real else found

    return tree(space, (part(*each) for each in leaves(space)))


def seen(space: Any) -> Any:
    """An action space as Sterling sees it: choices from 0, float64 as float32."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: seen(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([seen(part) for part in space.spaces])
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec)
    if isinstance(space, spaces.Box) and space.dtype == np.float64:
        return plain(space, single=True)
    return space


def own(space: Any, action: np.ndarray) -> np.ndarray:
    """The inverse of :func:`seen` for one part, with any leading axes: actions in the numbers and
    the type that the environment takes."""
    if isinstance(space, spaces.Box):
        return within(space, action)
    return action.astype(space.dtype) + np.asarray(getattr(space, "start", 0), space.dtype)


def within(space: spaces.Box, action: np.ndarray) -> np.ndarray:
    """Actions, with any leading axes, in a box's own type and bounds, rounded where it holds
    integers. These are clipped before they are cast: a cast wraps around and truncates."""
    low, high = space.low, space.high
    if space.dtype.kind == "f":
        return np.clip(action.astype(space.dtype), low, high)  # float32 may round beyond them
    whole = np.rint(np.asarray(action, np.float64))
    with np.errstate(invalid="ignore"):  # what lies beyond the type is replaced here
        made = whole.astype(space.dtype)
    return np.where(whole <= low, low, np.where(whole >= high, high, made))


def is_bounded(space: spaces.Space[Any]) -> bool:
    """Whether agents act in [-1, 1] for ``space``: a box of numbers with bounds that are finite in
    float32 and at most ``WIDEST`` apart. Others, the limits of a type say, are no bounds to act
    between: every number from [-1, 1] would be a huge one, or infinite."""
    if not isinstance(space, spaces.Box) or space.dtype.kind not in "fiu":
        return False
    low, high = (np.asarray(end, np.float64) for end in (space.low, space.high))
    largest = np.finfo(np.float32).max
    finite = (np.abs(low) <= largest) & (np.abs(high) <= largest)
    return bool(finite.all() and (high - low <= WIDEST).all())


def choices(space: spaces.Space[Any]) -> int:
    """How many entries a mask of allowed actions has: all parts' choices, laid end to end."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return 2 * math.prod(space.shape) if isinstance(space, spaces.MultiBinary) else 0


def is_joint(space: spaces.Space[Any], mask: tuple[int, ...]) -> bool:
    """Whether a mask of this shape has an axis per choice: it allows combinations."""
    if not isinstance(space, spaces.MultiDiscrete) or len(mask) < 2:
        return False
    return tuple(int(n) for n in space.nvec.ravel()) == mask
