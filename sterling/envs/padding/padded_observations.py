"""Sequences and graphs in observations, padded so that all observations have one shape.

A ``Sequence`` becomes a Dict of two entries: ``padded_count``, the number of items, and
``padded_items``, an array of ``max_items`` items whose last rows are padding. A ``Graph`` becomes
what ``padded_graphs.py`` says. This file runs inside worker processes, so it imports nothing slow
(no JAX).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sterling.envs.hosted.shared_memory import (
    OBSERVATION,
    ContractViolation,
    EnvDescription,
    plain_space,
)
from sterling.envs.padding.padded_graphs import NODE_COUNT, pad_graph, padded_graph_space
from sterling.envs.padding.padded_items import pad_rows, padded_rows_space
from sterling.system.mistake import Mistake

COUNT, ITEMS = "padded_count", "padded_items"


class PaddedObservations(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose sequences are padded to ``max_items`` items, and graphs to as many nodes
    and to ``max_edges`` edges. Raises :class:`ContractViolation` for an observation that holds
    more: nothing is cut."""

    def __init__(self, env: gymnasium.Env[Any, Any], max_items: int, max_edges: int | None = None):
        super().__init__(env)
        self.unpadded_space = env.observation_space
        self.observation_space = _padded_space(env.observation_space, max_items, max_edges)

    def observation(self, observation: Any) -> Any:
        """Return the observation with its sequences and graphs padded."""
        return pad(self.observation_space, self.unpadded_space, observation)


def pad_factory(
    factory: Callable[[], Any], max_items: Any, max_edges: Any = None
) -> Callable[[], Any]:
    """Return a factory of padded environments; the same one if ``max_items`` is None. Raises
    Mistake unless the maxima are whole numbers from 1."""
    from sterling.envs.env_options import check_whole_number  # workers do not need it

    if max_edges is not None:
        check_whole_number("max_edges", max_edges, 1)
        if max_items is None:
            raise Mistake("max_edges needs max_items, the number of nodes. Add --env max_items=16.")
    if max_items is None:
        return factory
    check_whole_number("max_items", max_items, 1)
    return functools.partial(build_padded, factory, max_items, max_edges)


def build_padded(factory: Callable[[], Any], max_items: int, max_edges: int | None) -> Any:
    """Build an environment and pad its observations; what is no Gymnasium environment stays as it
    is. Raises :class:`ContractViolation` if there is nothing to pad."""
    env = factory()
    if not isinstance(env, gymnasium.Env):
        return env
    if not _contains(env.observation_space, spaces.Sequence | spaces.Graph):
        raise ContractViolation("observation_space has no Sequence or Graph. Leave out max_items")
    if max_edges is not None and not _contains(env.observation_space, spaces.Graph):
        raise ContractViolation("observation_space has no Graph. Leave out max_edges")
    return PaddedObservations(env, max_items, max_edges)


def _contains(space: Any, kind: Any) -> bool:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return any(_contains(part, kind) for part in parts)
    return isinstance(space, kind)


def _padded_space(space: Any, most: int, edges: int | None) -> Any:
    if isinstance(space, spaces.Dict):
        parts = {key: _padded_space(part, most, edges) for key, part in space.spaces.items()}
        return spaces.Dict(parts)
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_padded_space(part, most, edges) for part in space.spaces])
    if isinstance(space, spaces.Graph):
        return padded_graph_space(space, most, edges)
    if not isinstance(space, spaces.Sequence):
        return space
    items = padded_rows_space(space.feature_space, most, "Sequence")
    return spaces.Dict({COUNT: spaces.Discrete(most + 1), ITEMS: items})


def pad(space: Any, unpadded: Any, obs: Any) -> Any:
    """Return an observation of ``unpadded`` in the form of ``space``; what is padded already, and
    an entry that ``unpadded`` lacks, such as an action mask, stays. Raises
    :class:`ContractViolation` for what does not fit."""
    if isinstance(unpadded, spaces.Sequence):
        if isinstance(obs, dict) and COUNT in obs:
            return obs
        rows = pad_rows(space[ITEMS], unpadded.feature_space, obs, "item", "max_items")
        return {COUNT: np.int64(len(obs)), ITEMS: rows}
    if isinstance(unpadded, spaces.Graph):
        is_padded = isinstance(obs, dict) and NODE_COUNT in obs
        return obs if is_padded else pad_graph(space, unpadded, obs)
    if isinstance(unpadded, spaces.Dict):
        named = unpadded.spaces.items()
        return obs | {key: pad(space[key], part, obs[key]) for key, part in named if key in obs}
    if isinstance(unpadded, spaces.Tuple):
        parts = zip(space.spaces, unpadded.spaces, obs, strict=True)
        return tuple(pad(*each) for each in parts)
    return obs


def pad_for_agent(description: EnvDescription, obs: Any) -> Any:
    """Do the same in the main process, with an action mask or without. Raises Mistake for what
    does not fit."""
    space: Any = description.obs
    unpadded = description.unpadded
    try:
        if description.wrap and isinstance(obs, dict) and OBSERVATION in obs:
            return obs | {OBSERVATION: pad(space[OBSERVATION], unpadded, obs[OBSERVATION])}
        return pad(space, unpadded, obs)
    except ContractViolation as error:
        raise Mistake(f"{error}.") from error


def unpadded_space(env: gymnasium.Env[Any, Any]) -> Any:
    """Return the observation space before it was padded; None if it was not."""
    return plain_space(env.unpadded_space) if isinstance(env, PaddedObservations) else None


def check_is_padded(name: str, leaf: spaces.Space[Any]) -> None:
    """Raise :class:`ContractViolation` for a sequence or graph in an observation space."""
    if name != "observation_space":
        return
    said = "Say how many items it may hold at most: --env max_items=16"
    if isinstance(leaf, spaces.Sequence):
        raise ContractViolation(f"{name} has a Sequence. {said}")
    if isinstance(leaf, spaces.Graph):
        raise ContractViolation(f"{name} has a Graph. {said} (nodes) --env max_edges=64")
