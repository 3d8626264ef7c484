"""Words a user typed: what they mean, and what is said when a name is not known."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from typing import Any


def hint(wrong: str, known: Iterable[str], otherwise: str = "", count: int = 1) -> str:
    """'; did you mean X?' with up to ``count`` near names, else '; ``otherwise``', or nothing.

    Capitals do not matter.
    """
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(wrong.lower(), names, count, 0.5)
    if near:
        return f"; did you mean {' or '.join(names[each] for each in near)}?"
    return f"; {otherwise}" if otherwise else ""


def literal(text: str) -> Any:
    """A Python literal, true, false or none; anything else is text."""
    plain = {"true": True, "false": False, "none": None}
    if text.lower() in plain:
        return plain[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a word
        return text
