"""Find the bounds of the returns of a run that was read from disk."""

from __future__ import annotations

from typing import Any

from sterling.lookup import user_imports
from sterling.references.return_bounds import return_bounds
from sterling.statistics.scores.score_bounds import Bounds, parse_bounds


def return_limits(config: dict[str, Any], result: dict[str, Any]) -> Bounds | None:
    """Return the bounds of returns; None where nothing is known.

    They are read from ``result.json`` or, for older files, follow from the environment's rules.
    Those of a run of several phases hold in all its environments.
    """
    if config.get("phases"):
        return _limits_of_phases(config)
    said = result.get("final", {}).get("return", {}).get("within") or config.get("return_within")
    if said:
        return parse_bounds(said)
    known = config or result
    name = known.get("environment") or ""
    if config.get("custom_environment") or config.get("speech") or user_imports.is_reference(name):
        return None
    options = config.get("env_options")
    return return_bounds(name, options if isinstance(options, dict) else None)


def _limits_of_phases(config: dict[str, Any]) -> Bounds | None:
    """Return bounds that hold for returns in the environments of all phases."""
    if config.get("return_within"):
        return parse_bounds(config["return_within"])
    name, options = config.get("environment"), config.get("env_options") or {}
    found = [
        _limits_of_environment(name, options) if not config.get("custom_environment") else None
    ]
    for phase in config["phases"]:
        own = phase.get("environment")
        options = {**({} if own else options), **(phase.get("env_options") or {})}
        name = own or name
        found.append(_limits_of_environment(name, options))
    lows, highs = ([None if bounds is None else bounds[end] for bounds in found] for end in (0, 1))
    low = min((x for x in lows if x is not None), default=None) if None not in lows else None
    high = max((x for x in highs if x is not None), default=None) if None not in highs else None
    return (low, high) if (low, high) != (None, None) else None


def _limits_of_environment(name: Any, options: dict[str, Any]) -> Bounds | None:
    if not isinstance(name, str) or user_imports.is_reference(name):
        return None
    return return_bounds(name, options)
