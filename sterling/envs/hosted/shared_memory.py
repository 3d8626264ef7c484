"""Arrays that the trainer shares with environment workers: one row per environment.

They lie in one block of memory. The trainer writes orders and actions; the workers write
observations, rewards and ends. Every leaf of an observation or action has an array of its own,
``obs0``, ``obs1``... in the order of ``jax.tree.leaves``. The same file converts between an
environment's own spaces and those that agents see.
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

from sterling.system.shown_values import shown_value

SKIP, STEP, RESET, BUILD = range(4)  # orders; BUILD makes a new, seeded environment
OBSERVATION = "observation"  # entry beside the action mask of a masked observation

LARGEST_NUMBER = float(np.finfo(np.float32).max)

SharedArrays = dict[str, np.ndarray]
LeafPath = tuple[Any, ...]
# the ``info`` entries to report as channels, and the weights of a vector reward
ReportOptions = tuple[tuple[str, ...], tuple[float, ...]]


class ContractViolation(Exception):
    """The environment breaks Gymnasium's contract."""


class NotGymnasiumEnv(ContractViolation):
    """A factory returned something that is not a Gymnasium environment."""


def read_numbers(value: Any, what: str) -> np.ndarray:
    """Return real numbers as float64; raise :class:`ContractViolation`, which begins with ``what``,
    for anything else, and for numbers that float32 does not hold."""
    try:
        given = np.asarray(value)
        if given.dtype.kind in "cUSMm":  # complex numbers, texts, dates
            raise TypeError
        numbers = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ContractViolation(f"{what} {shown_value(value)}. Give real numbers") from None
    if not np.isfinite(numbers).all():
        raise ContractViolation(f"{what} {shown_value(value)}. Give finite numbers")
    if (np.abs(numbers) > LARGEST_NUMBER).any():
        raise ContractViolation(
            f"{what} {shown_value(value)}, beyond the {LARGEST_NUMBER:.3g} of float32"
        )
    return numbers


class EnvDescription(NamedTuple):
    """An environment's spaces and what it reports, found by one reset and one step."""

    obs: spaces.Space[Any]  # as agents see it: float32, with the action mask if there is one
    action: spaces.Space[Any]  # the environment's own
    mask: str = ""  # where the mask of allowed actions comes from: "", "method" or "info"
    wrap: bool = False  # the observation is no dict: it is put beside the mask, under OBSERVATION
    channels: tuple[tuple[str, int], ...] = ()  # reported: name, entries (0: a scalar)
    weights: tuple[float, ...] = ()  # of the entries of a vector reward
    agents: tuple[str, ...] = ()  # names of the agents that those entries belong to
    unseen: Any = ()  # the environment's ``unseen``: entries that only critics get
    unpadded: Any = None  # the environment's own observation space, if ``obs`` is padded
    parts: tuple[tuple[str, ...], ...] = ()  # of each channel that is a dict, its entries
    limit: int | None = None  # steps after which it truncates an episode, if it says so
    same_paths: tuple[tuple[str, ...], ...] = ()  # entries of info with one path; the first is read
    outside: str = ""  # what of its first observations lies outside their space


def space_leaves(
    space: spaces.Space[Any], path: LeafPath = ()
) -> list[tuple[LeafPath, spaces.Space[Any]]]:
    """Return every leaf of a space with its path, in the order of ``jax.tree.leaves``."""
    if isinstance(space, spaces.Dict):
        parts: Any = sorted(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = enumerate(space.spaces)
    else:
        return [(path, space)]
    return [leaf for key, part in parts for leaf in space_leaves(part, (*path, key))]


def arrange_leaves(space: spaces.Space[Any], parts: Iterator[Any]) -> Any:
    """Arrange ``parts``, given in the order of ``space_leaves``, in the structure of ``space``."""
    if isinstance(space, spaces.Dict):
        return {key: arrange_leaves(part, parts) for key, part in sorted(space.spaces.items())}
    if isinstance(space, spaces.Tuple):
        return tuple(arrange_leaves(part, parts) for part in space.spaces)
    return next(parts)


def make_shared_arrays(
    description: EnvDescription, envs: int, workers: int, memory: int | None = None
) -> SharedArrays:
    """Make the shared arrays of ``envs`` environments: in the open file ``memory``, or in private
    memory if that is None."""
    fields: dict[str, tuple[tuple[int, ...], Any]] = {
        "order": ((envs,), np.uint8),
        "seed": ((envs,), np.int64),
        "reward": ((envs,), np.float32),
        "terminated": ((envs,), np.bool_),
        "truncated": ((envs,), np.bool_),
        "current": ((workers,), np.int64),  # the environment that a worker is stepping, or -1
        "ticks": ((workers,), np.int64),  # orders begun so far; a worker that hangs stops counting
    }
    if description.channels:
        # whether a step's info lacks the channel
        fields["missing"] = ((envs, len(description.channels)), np.bool_)
    for number, (_, entries) in enumerate(description.channels):
        fields[f"channel{number}"] = ((envs, *((entries,) if entries else ())), np.float32)
    for name, space in (("obs", description.obs), ("action", description.action)):
        for number, (_, leaf) in enumerate(space_leaves(space)):
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


def plain_space(space: Any, single: bool = False) -> Any:
    """Return the same space without a user's subclasses.

    With ``single``, boxes of float64, and integer boxes whose bounds exceed 32 bits, become
    float32.
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: plain_space(part, single) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([plain_space(part, single) for part in space.spaces])
    if isinstance(space, spaces.Sequence):
        return spaces.Sequence(plain_space(space.feature_space))
    if isinstance(space, spaces.Graph):
        edge = None if space.edge_space is None else plain_space(space.edge_space)
        return spaces.Graph(plain_space(space.node_space), edge)
    return _plain_leaf(space, single)


def _plain_leaf(space: Any, single: bool) -> Any:
    if isinstance(space, spaces.Box):
        dtype = np.float32 if single and _exceeds_32_bits(space) else space.dtype
        return spaces.Box(space.low.astype(dtype), space.high.astype(dtype), dtype=dtype)
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec, dtype=space.dtype, start=space.start)
    return spaces.MultiBinary(space.n)


def _exceeds_32_bits(space: spaces.Box) -> bool:
    """Whether a box needs more than JAX's 32 bits; integers would silently wrap around."""
    if space.dtype.itemsize < 8 or space.dtype.kind == "f":
        return space.dtype == np.float64
    limits = np.iinfo(np.int32 if space.dtype.kind == "i" else np.uint32)
    return bool((space.low < limits.min).any() or (space.high > limits.max).any())


def cast_observations(space: spaces.Space[Any], obs: Any) -> Any:
    """Cast observations, with any leading axes, to the types of ``space``, which comes from
    ``plain_space``."""

    def cast(path: LeafPath, leaf: spaces.Space[Any]) -> Any:
        array = functools.reduce(lambda inside, key: inside[key], path, obs)
        is_real = array.dtype == np.float64 or leaf.dtype == np.float32
        return array.astype(np.float32) if is_real else array

    return arrange_leaves(space, (cast(*each) for each in space_leaves(space)))
