"""What the returns of a run that is read cannot leave."""

from __future__ import annotations

from typing import Any

from sterling import importing
from sterling.references.bounds import return_bounds
from sterling.statistics.declared import Bounds, checked


def limits(config: dict[str, Any], result: dict[str, Any]) -> Bounds | None:
    """What returns cannot leave: as ``result.json`` says, or (older files) by the environment's
    rules; None where nothing is known."""
    said = result.get("final", {}).get("return", {}).get("within") or config.get("return_within")
    if said:
        return checked(said)
    known = config or result
    name = known.get("environment") or ""
    if config.get("phases"):  # the returns are those of another world, perhaps
        return None
    if config.get("custom_environment") or config.get("speech") or importing.is_reference(name):
        return None
    options = config.get("env_options")
    return return_bounds(name, options if isinstance(options, dict) else None)
