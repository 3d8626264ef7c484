"""Bounds of an environment's returns: what no episode's undiscounted return can lie outside of.

They follow from the environment's published rules and stand, each with its reason, in
``sterling/references/return_bounds.json``; environments whose rules give no bound are not in it.
A user's environment declares its own with ``--return-within LOW,HIGH``, with
``sterling.train(..., return_within=(low, high))``, or with an attribute ``return_within`` of the
factory. Intervals of scores are made with them: see ``docs/statistics.md``.
"""

from __future__ import annotations

import fnmatch
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sterling import importing

Bounds = tuple[float | int | None, float | int | None]
BACKENDS = ("classic", "envpool", "gymnax", "gymnasium")  # prefixes that change no rule
# options that change no reward and no length
HARMLESS = ("stack", "flatten", "render_mode", "workers", "timeout", "max_failures", "channels")


def return_bounds(environment: Any, options: Mapping[str, Any] | None = None) -> Bounds | None:
    """Return ``(low, high)`` of an environment's return, None for an end without a bound; None
    where nothing is known.

    ``options``: what the environment is given. One that may change rewards or lengths undoes what
    its rules say; where an entry lists it as ``unchanged_by`` the bounds stay.
    """
    if isinstance(environment, str) and importing.is_reference(environment):
        environment = importing.load(environment)
    if not isinstance(environment, str):
        return getattr(environment, "return_within", None)
    prefix, colon, rest = environment.partition(":")
    name = rest if colon and prefix in BACKENDS else environment
    entry = next((one for one in _entries() if _is_of(one, name)), None)
    if entry is None:
        return None
    changed = {key for key, value in (options or {}).items() if value is not None}
    if changed - {*HARMLESS, *entry.get("unchanged_by", ())}:
        return None
    low, high = entry["within"]
    return low, high


def _is_of(entry: dict[str, Any], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in entry["names"])


@functools.cache
def _entries() -> list[dict[str, Any]]:
    file = Path(__file__).parent / "return_bounds.json"
    return list(json.loads(file.read_text(encoding="utf-8"))["bounds"])
