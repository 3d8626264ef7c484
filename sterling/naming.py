"""Words a user typed: what they mean, and what is said when a name is not known."""

from __future__ import annotations

import ast
import contextlib
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
    where it was written, ``<lambda train.py:12>``, and what it takes from around it, as far as
    numbers, words and classes go: ``<lambda train.py:12 size=5>``, ``make(size=5)``."""
    if isinstance(factory, functools.partial):
        words = [repr(word) for word in factory.args]
        words += [f"{name}={value!r}" for name, value in factory.keywords.items()]
        return f"{called(factory.func)}({', '.join(words)})"
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    code = getattr(factory, "__code__", None)
    held = [] if code is None else _held(factory)
    if code is not None and name.endswith("<lambda>"):
        place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        return f"<lambda {' '.join([place, *held])}>"
    name = name.rpartition("<locals>.")[2]
    return f"{name}({', '.join(held)})" if held else name


def _held(function: Any) -> list[str]:
    """What a function takes from around it, ``name=value``; of globals only where it is a lambda,
    which may stand in a loop."""
    code, found = function.__code__, dict[str, Any]()
    if function.__name__ == "<lambda>":
        known = function.__globals__
        found |= {name: known[name] for name in code.co_names if name in known}
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # nothing in it yet
            found[name] = cell.cell_contents
    given = function.__defaults__ or ()
    taken = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
    found |= dict(zip(taken, given, strict=True))
    words = {name: _word(value) for name, value in found.items()}
    return [f"{name}={word}" for name, word in words.items() if word not in ("", name)]


def _word(value: Any) -> str:
    """The same in every process; empty for what has no such name."""
    if isinstance(value, type):
        return value.__name__
    return repr(value)[:40] if isinstance(value, str | int | float) else ""
