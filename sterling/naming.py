"""What is said when a name is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(wrong: str, known: Iterable[str], otherwise: str = "", count: int = 1) -> str:
    """'; did you mean X?' with up to ``count`` near names, else '; ``otherwise``', or nothing.

    Capitals do not matter.
    """
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(wrong.lower(), names, count, 0.5)
    if near:
        return f"; did you mean {' or '.join(names[each] for each in near)}?"
    return f"; {otherwise}" if otherwise else ""
