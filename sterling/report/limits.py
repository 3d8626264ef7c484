"""What the returns of a run that is read cannot leave."""

from __future__ import annotations

from typing import Any

from sterling import importing
from sterling.references.bounds import return_bounds
from sterling.statistics.declared import Bounds, checked


def limits(config: dict[str, Any], result: dict[str, Any]) -> Bounds | None:
    """What returns cannot leave: as ``result.json`` says, or (older files) by the environment's
    rules; None where nothing is known. Those of a run of several phases hold in all its worlds."""
    if config.get("phases"):
        return _of_phases(config)
    said = result.get("final", {}).get("return", {}).get("within") or config.get("return_within")
    if said:
        return checked(said)
    known = config or result
    name = known.get("environment") or ""
    if config.get("custom_environment") or config.get("speech") or importing.is_reference(name):
        return None
    options = config.get("env_options")
    return return_bounds(name, options if isinstance(options, dict) else None)


def _of_phases(config: dict[str, Any]) -> Bounds | None:
    """Bounds that returns keep to in the worlds of all phases."""
    if config.get("return_within"):
        return checked(config["return_within"])
    name, options = config.get("environment"), config.get("env_options") or {}
    found = [_of_world(name, options) if not config.get("custom_environment") else None]
    for phase in config["phases"]:
        own = phase.get("environment")
        options = {**({} if own else options), **phase.get("env_options", {})}
        name = own or name
        found.append(_of_world(name, options))
    lows, highs = ([None if bounds is None else bounds[end] for bounds in found] for end in (0, 1))
    low = min((x for x in lows if x is not None), default=None) if None not in lows else None
    high = max((x for x in highs if x is not None), default=None) if None not in highs else None
    return (low, high) if (low, high) != (None, None) else None


def _of_world(name: Any, options: dict[str, Any]) -> Bounds | None:
    if not isinstance(name, str) or importing.is_reference(name):
        return None
    return return_bounds(name, options)
