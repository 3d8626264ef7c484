"""Options that an environment does not have."""

from __future__ import annotations

from collections.abc import Iterable

from sterling.naming import hint
from sterling.types import Mistake


def check_options(environment: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first option that the environment does not have."""
    known = sorted(known)
    for option in given:
        if option not in known:
            near = hint(option, known, f"it has {', '.join(known)}")
            raise Mistake(f"environment {environment} has no option {option!r}{near}")
