"""What is said when a name is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sterling.types import Mistake


def nearest(name: str, known: Iterable[str]) -> str:
    """'; did you mean X?', or nothing where no name is near; capitals do not matter."""
    names = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), names, 3, 0.6)
    return f"; did you mean {' or '.join(names[each] for each in found)}?" if found else ""


def check_options(environment: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first option that the environment does not have."""
    known = sorted(known)
    for option in given:
        if option not in known:
            hint = nearest(option, known) or f"; it has {', '.join(known)}"
            raise Mistake(f"environment {environment} has no option {option!r}{hint}")
