"""Sequences in observations, padded to a stated maximum so that all observations have one shape.

A ``Sequence`` becomes a Dict of two entries: ``padded_count``, the number of items, and
``padded_items``, an array of ``max_items`` items whose last rows are padding. This file runs inside
worker processes, so it imports nothing slow (no JAX).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sterling.envs.hosted.shared_memory import ContractViolation
from sterling.system.mistake import Mistake

COUNT, ITEMS = "padded_count", "padded_items"


class PaddedObservations(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose sequences are padded to ``max_items`` items. Raises
    :class:`ContractViolation` for an observation that holds more: nothing is cut."""

    def __init__(self, env: gymnasium.Env[Any, Any], max_items: int):
        super().__init__(env)
        self.observation_space = _padded_space(env.observation_space, max_items)

    def observation(self, observation: Any) -> Any:
        """Return the observation with its sequences padded."""
        return pad(self.observation_space, observation)


def pad_factory(factory: Callable[[], Any], max_items: Any) -> Callable[[], Any]:
    """Return a factory of padded environments; the same one if ``max_items`` is None. Raises
    Mistake unless it is a whole number from 1."""
    if max_items is None:
        return factory
    from sterling.envs.env_options import check_whole_number  # workers do not need it

    check_whole_number("max_items", max_items, 1)
    return functools.partial(build_padded, factory, max_items)


def build_padded(factory: Callable[[], Any], max_items: int) -> Any:
    """Build an environment and pad its sequences; what is no Gymnasium environment stays as it
    is. Raises :class:`ContractViolation` if there is no sequence to pad."""
    env = factory()
    if not isinstance(env, gymnasium.Env):
        return env
    if not _has_sequence(env.observation_space):
        raise ContractViolation("observation_space has no Sequence. Leave out max_items")
    return PaddedObservations(env, max_items)


def _has_sequence(space: Any) -> bool:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return any(map(_has_sequence, parts))
    return isinstance(space, spaces.Sequence)


def _padded_space(space: Any, most: int) -> Any:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _padded_space(part, most) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_padded_space(part, most) for part in space.spaces])
    if not isinstance(space, spaces.Sequence):
        return space
    item = space.feature_space
    if isinstance(item, spaces.Box):
        low, high = np.minimum(item.low, 0), np.maximum(item.high, 0)  # padding is 0
        bounds = [np.stack([bound] * most).astype(item.dtype) for bound in (low, high)]
        items: Any = spaces.Box(bounds[0], bounds[1], dtype=item.dtype.type)
    elif isinstance(item, spaces.Discrete):
        items = spaces.MultiDiscrete([int(item.n)] * most, start=[int(item.start)] * most)
    else:
        raise ContractViolation(
            f"observation_space has a Sequence of {type(item).__name__}. Use a Sequence of Box or "
            "Discrete"
        )
    return spaces.Dict({COUNT: spaces.Discrete(most + 1), ITEMS: items})


def pad(space: Any, obs: Any) -> Any:
    """Return an observation with its sequences padded to the form of ``space``, which has been
    padded; what is padded already stays. Raises :class:`ContractViolation` for too many items."""
    if isinstance(space, spaces.Dict):
        if set(space.spaces) == {COUNT, ITEMS}:
            return obs if isinstance(obs, dict) and COUNT in obs else _pad_items(space[ITEMS], obs)
        return {key: pad(part, obs[key]) for key, part in space.spaces.items() if key in obs}
    if isinstance(space, spaces.Tuple):
        return tuple(pad(part, each) for part, each in zip(space.spaces, obs, strict=True))
    return obs


def pad_for_agent(space: Any, obs: Any) -> Any:
    """Do the same in the main process. Raises Mistake for too many items."""
    try:
        return pad(space, obs)
    except ContractViolation as error:
        raise Mistake(f"{error}.") from error


def _pad_items(items: Any, obs: Any) -> dict[str, Any]:
    most, shape = items.shape[0], items.shape[1:]
    if len(obs) > most:
        raise ContractViolation(
            f"an observation holds {len(obs)} items, more than max_items={most}. Use --env "
            f"max_items={len(obs)} or more"
        )
    rows = np.zeros(items.shape, items.dtype) + getattr(items, "start", np.zeros((), items.dtype))
    for index, value in enumerate(obs):
        if np.shape(value) != shape:
            said = f"but observation_space says {shape}"
            raise ContractViolation(f"item {index} has shape {np.shape(value)}, {said}")
        rows[index] = value
    return {COUNT: np.int64(len(obs)), ITEMS: rows}
