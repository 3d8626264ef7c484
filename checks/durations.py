"""How long tests take: ``durations.json`` has test identity -> seconds."""

from __future__ import annotations

import json
from pathlib import Path

from checks.selection import Selection

FILE = Path(__file__).with_name("durations.json")
UNKNOWN = 0.5  # seconds of a test that is not listed: shorter ones are left out


def load() -> dict[str, float]:
    """Return the committed durations in seconds."""
    found: dict[str, float] = json.loads(FILE.read_text())
    return found


def split(identity: str) -> tuple[str, str, str | None]:
    """Return the file, the function and the case (None if there is one only) of a test."""
    file, _, rest = identity.partition("::")
    function, bracket, case = rest.partition("[")
    return file, function, case.removesuffix("]") if bracket else None


def total(known: dict[str, float], chosen: Selection) -> float:
    """Return the seconds of all listed tests that are selected."""
    seconds = 0.0
    for identity, duration in known.items():
        file, function, case = split(identity)
        tests = chosen.get(file, {})
        cases = tests.get("*") or tests.get(function)
        seconds += duration if cases and cases.keeps(case) else 0.0
    return seconds
