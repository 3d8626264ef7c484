"""The fields of what an algorithm of one's own is written with, for docs/extending.md."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

from sterling import types
from sterling.actor import Past
from sterling.experience.batch_draws import Source

CLASSES = (
    *(types.Needs, types.Feed, types.Dreams, types.Beside, types.Anywhere, types.Later),
    *(types.SameTask, types.Signals, types.Record, Past, types.Spec, types.Log),
)
FIELD = re.compile(r"    (\w+): [^#]*?(?:  # (.*))?$")
COMMENT = re.compile(r"    # (.*)$")


def table() -> list[str]:
    """Return a table of every field of ``CLASSES``, and the signatures of a source's methods."""
    lines = ["| class | field | what |", "|---|---|---|"]
    for made in CLASSES:
        bases = [each for each in made.__mro__[::-1] if each.__module__.startswith("sterling")]
        words = comments("\n".join(map(inspect.getsource, bases)))
        for at, field in enumerate(dataclasses.fields(made)):
            name = f"`{made.__name__}`" if at == 0 else ""
            what = words.get(field.name, "").replace("|", "\\|").replace("``", "`")
            lines.append(f"| {name} | `{field.name}{default(field)}` | {what} |")
    for at, (name, said) in enumerate(methods(Source)):
        lines.append(f"| {'`Source`' if at == 0 else ''} | `{name}` | {said} |")
    return lines


def default(field: Any) -> str:
    """Return " = VALUE" of a field with a default."""
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory()!r}"
    return "" if field.default is dataclasses.MISSING else f" = {field.default!r}"


def comments(source: str) -> dict[str, str]:
    """Return the comment of each field in a class's source. Lines that are only a comment belong to
    the field above, or to the one below if that has none of its own."""
    found: dict[str, str] = {}
    above, waiting = "", []
    for line in source.splitlines():
        if comment := COMMENT.match(line):
            waiting.append(comment.group(1))
        elif field := FIELD.match(line):
            name, own = field.groups()
            if waiting and above and own:
                found[above] = " ".join([found[above], *waiting])
            found[name] = own or " ".join(waiting) or found.get(name, "")
            above, waiting = name, []
    return found


def methods(made: Any) -> Iterator[tuple[str, str]]:
    """Yield the signature and the first line of the docstring of each method and property."""
    for name, part in vars(made).items():
        words = (inspect.getdoc(part) or "").partition("\n\n")[0].replace("\n", " ")
        if isinstance(part, property):
            yield name, words
        elif inspect.isfunction(part) and not name.startswith("_"):
            given = [str(each).partition(":")[0] for each in parameters(part)]
            yield f"{name}({', '.join(given)})", words


def parameters(function: Any) -> list[inspect.Parameter]:
    """Return a method's parameters without ``self``."""
    return list(inspect.signature(function).parameters.values())[1:]
