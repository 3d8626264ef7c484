"""Name environments given as functions: the function's name and the values it captures."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any


def factory_name(factory: Any) -> str:
    """Return a name for an environment factory that differs between different factories.

    A lambda's name is its place in the source, ``<lambda train.py:12>``. The numbers, words and
    classes that a function captures are added: ``<lambda train.py:12 size=5>``, ``make(size=5)``.
    """
    if isinstance(factory, functools.partial):
        words = [repr(word) for word in factory.args]
        words += [f"{name}={value!r}" for name, value in factory.keywords.items()]
        return f"{factory_name(factory.func)}({', '.join(words)})"
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    code = getattr(factory, "__code__", None)
    held = [] if code is None else _captured_values(factory)
    if code is not None and name.endswith("<lambda>"):
        place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        return f"<lambda {' '.join([place, *held])}>"
    name = name.rpartition("<locals>.")[2]
    return f"{name}({', '.join(held)})" if held else name


def _captured_values(function: Any) -> list[str]:
    """Return the values that a function captures, as ``name=value``: closures and defaults; for
    lambdas also globals, because a lambda may stand in a loop."""
    code, found = function.__code__, dict[str, Any]()
    if function.__name__ == "<lambda>":
        known = function.__globals__
        found |= {name: known[name] for name in code.co_names if name in known}
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # the cell is still empty
            found[name] = cell.cell_contents
    given = function.__defaults__ or ()
    taken = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
    found |= dict(zip(taken, given, strict=True))
    words = {name: _value_text(value) for name, value in found.items()}
    return [f"{name}={word}" for name, word in words.items() if word not in ("", name)]


def _value_text(value: Any) -> str:
    """Return text for a value that is the same in every process; "" if there is none."""
    if isinstance(value, type):
        return value.__name__
    return repr(value)[:40] if isinstance(value, str | int | float) else ""
