"""Read the preset of an algorithm for an environment, or for environments of its kind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from gymnasium import spaces

from sterling.problem.picture_layout import picture_layout
from sterling.system.terminal_messages import print_notice

ATARI = "Atari"  # the preset of Atari games without a preset of their own
PICTURES = "pictures"  # the preset of other environments that observe a picture
SMALL_VECTORS = "small vectors"  # of those that observe at most SMALL_SIZE numbers
SMALL_SIZE = 100
SOURCES = {
    PICTURES: "RL Baselines3 Zoo's settings for Atari",
    SMALL_VECTORS: "RL Baselines3 Zoo's settings for LunarLander",
}


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
    known = _presets(algorithm)
    if not environment or not any(kind in known for kind in SOURCES):
        return {}
    kind = _observed_kind(environment, options)
    fields = known.get(kind, {})
    taken = ", ".join(f"{name}={value}" for name, value in fields.items() if name not in given)
    if taken:
        print_notice(
            f"{algorithm}: settings for {kind} ({SOURCES[kind]}): {taken}; "
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


def _observed_kind(environment: Any, options: Mapping[str, Any]) -> str:
    """Return the kind of what an environment observes; "" if it is neither a picture nor few
    numbers. An environment that cannot be made is of no kind: the run itself will say why."""
    from sterling import envs
    from sterling.envs.hosted.worker_pool import WorldFailed
    from sterling.system.mistake import Mistake

    try:
        world = envs.make(environment, (0,), 1, purpose="evaluate", **options)
    except (Mistake, WorldFailed):
        return ""
    try:
        leaves = _leaf_spaces(world.spec.obs)
    finally:
        world.close()
    if any(isinstance(leaf, spaces.Box) and picture_layout(leaf) for leaf in leaves):
        return PICTURES
    return SMALL_VECTORS if sum(map(_vector_size, leaves)) <= SMALL_SIZE else ""


def _leaf_spaces(space: Any) -> list[Any]:
    """Return the parts of a nested space."""
    if isinstance(space, spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in _leaf_spaces(part)]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in _leaf_spaces(part)]
    return [space]


def _vector_size(space: Any) -> float:
    """Return the numbers that a part of an observation is encoded as; infinity for matrices."""
    if isinstance(space, spaces.Discrete):
        return float(space.n)
    shape = space.shape or ()
    return float(math.prod(shape)) if len(shape) <= 1 else math.inf
