"""Read the preset of an algorithm for an environment, or for environments of its kind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from gymnasium import spaces

from sterling.system.terminal_messages import print_notice

ATARI = "Atari"  # the preset of Atari games without a preset of their own
SMALL_VECTORS = "small vectors"  # of other environments that observe at most SMALL_SIZE numbers
SMALL_SIZE = 100
SOURCES = {SMALL_VECTORS: "RL Baselines3 Zoo's settings for LunarLander"}


def load_preset(algorithm: str, environment: Any) -> dict[str, Any]:
    """Return the tuned fields of this pair from presets.json, or those of its family (Atari); {} if
    there are none."""
    if not isinstance(environment, str):
        return {}
    known = _presets(algorithm)
    if environment and environment not in known and ATARI in known and _is_atari(environment):
        environment = ATARI
    return dict(known.get(environment, {}))


def load_kind_preset(
    algorithm: str, environment: Any, options: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields for environments of this kind, and print a notice of those that are not
    ``given``; {} if there are none. The environment is made once, to see what it observes."""
    fields = _presets(algorithm).get(SMALL_VECTORS, {})
    if not fields or not environment or not _observes_small_vectors(environment, options):
        return {}
    taken = ", ".join(f"{name}={value}" for name, value in fields.items() if name not in given)
    if taken:
        print_notice(
            f"{algorithm}: settings for {SMALL_VECTORS} ({SOURCES[SMALL_VECTORS]}): {taken}; "
            "--no-preset keeps the defaults"
        )
    return dict(fields)


def _presets(algorithm: str) -> dict[str, Any]:
    text = resources.files("sterling.algorithms").joinpath("presets.json").read_text()
    return dict(json.loads(text).get(algorithm, {}))


def _is_atari(environment: str) -> bool:
    from sterling.envs.compiled import envpool_env
    from sterling.envs.registry import find_backend

    backend, name = find_backend(environment)
    return backend == "envpool" and envpool_env.is_atari(name)


def _observes_small_vectors(environment: Any, options: Mapping[str, Any]) -> bool:
    """Whether each observation is at most ``SMALL_SIZE`` numbers without an order in space. An
    environment that cannot be made is none: the run itself will say why."""
    from sterling import envs
    from sterling.envs.hosted.worker_pool import WorldFailed
    from sterling.system.mistake import Mistake

    try:
        world = envs.make(environment, (0,), 1, purpose="evaluate", **options)
    except (Mistake, WorldFailed):
        return False
    try:
        sizes = [_vector_size(space) for space in _leaf_spaces(world.spec.obs)]
    finally:
        world.close()
    return sum(sizes) <= SMALL_SIZE


def _leaf_spaces(space: Any) -> list[Any]:
    """Return the parts of a nested space."""
    if isinstance(space, spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in _leaf_spaces(part)]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in _leaf_spaces(part)]
    return [space]


def _vector_size(space: Any) -> float:
    """Return the numbers that a part of an observation is encoded as; infinity for pictures."""
    if isinstance(space, spaces.Discrete):
        return float(space.n)
    shape = space.shape or ()
    return float(math.prod(shape)) if len(shape) <= 1 else math.inf
