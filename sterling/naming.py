"""Words a user typed: what they mean, and what is said when a name is not known."""

from __future__ import annotations

import ast
import difflib
import functools
from collections.abc import Iterable
from pathlib import Path
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


def called(factory: Any) -> str:
    """A name for what makes an environment, another one for every other: a lambda's is the place
    where it was written, ``<lambda train.py:12>``."""
    if isinstance(factory, functools.partial):
        words = [repr(word) for word in factory.args]
        words += [f"{name}={value!r}" for name, value in factory.keywords.items()]
        return f"{called(factory.func)}({', '.join(words)})"
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    code = getattr(factory, "__code__", None)
    if code is not None and name.endswith("<lambda>"):
        return f"<lambda {Path(code.co_filename).name}:{code.co_firstlineno}>"
    return name.rpartition("<locals>.")[2]
