"""Read the settings that were tuned for an algorithm on an environment."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

ATARI = "Atari"  # the preset of games that have none of their own


def presets(algorithm: str, environment: Any) -> dict[str, Any]:
    """Return the tuned fields of this pair from presets.json, or of its family (Atari), or none."""
    if not isinstance(environment, str):
        return {}
    text = resources.files("sterling.algorithms").joinpath("presets.json").read_text()
    known = json.loads(text).get(algorithm, {})
    if environment and environment not in known and ATARI in known and _is_atari(environment):
        environment = ATARI
    return dict(known.get(environment, {}))


def _is_atari(environment: str) -> bool:
    from sterling.envs import envpool
    from sterling.envs.registry import find

    backend, name = find(environment)
    return backend == "envpool" and envpool.is_atari(name)
