"""Bounds of an environment's undiscounted return per episode.

They follow from the environment's published rules and are listed, each with its reason, in
``sterling/references/return_bounds.json``; environments whose rules imply no bound are not listed.
A user's environment declares its own with ``--return-within LOW,HIGH``, with ``sterling.train(...,
return_within=(low, high))``, or with an attribute ``return_within`` of the factory. Confidence
intervals of scores use them: see ``docs/statistics.md``.
"""

from __future__ import annotations

import fnmatch
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sterling.lookup import user_imports

Bounds = tuple[float | int | None, float | int | None]
BACKENDS = ("classic", "envpool", "gymnax", "gymnasium")  # prefixes that do not change the rules
# options that change neither rewards nor episode lengths
HARMLESS_OPTIONS = (
    "stack",
    "flatten",
    "action_bound",
    "max_items",
    "max_edges",
    "render_mode",
    "workers",
    "timeout",
    "max_failures",
    "channels",
    "summaries",
)


def return_bounds(environment: Any, options: Mapping[str, Any] | None = None) -> Bounds | None:
    """Return ``(low, high)`` of an environment's return; an end is None if unbounded, the result is
    None if nothing is known.

    ``options`` are the environment's. One that may change rewards or lengths voids the bounds,
    unless the entry lists it as ``unchanged_by``.
    """
    if isinstance(environment, str) and user_imports.is_reference(environment):
        environment = user_imports.load(environment)
    if not isinstance(environment, str):
        return getattr(environment, "return_within", None)
    prefix, colon, rest = environment.partition(":")
    name = rest if colon and prefix in BACKENDS else environment
    entry = next((one for one in _load_entries() if _matches(one, name)), None)
    if entry is None:
        return None
    changed = {key for key, value in (options or {}).items() if value is not None}
    if changed - {*HARMLESS_OPTIONS, *entry.get("unchanged_by", ())}:
        return None
    low, high = entry["within"]
    return low, high


def _matches(entry: dict[str, Any], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in entry["names"])


@functools.cache
def _load_entries() -> list[dict[str, Any]]:
    file = Path(__file__).parent / "return_bounds.json"
    return list(json.loads(file.read_text(encoding="utf-8"))["bounds"])
