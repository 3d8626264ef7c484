"""An algorithm's options: the fields of its Config, as its file's text says them.

Their help is the comment beside each field. The text is read, not imported, so that nothing slow
(JAX) is loaded before there is work to do; that is why the options are not made from the dataclass.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
from collections.abc import Sequence

from sterling import importing, plugins
from sterling.algorithms import ALGORITHMS, about, named, reference_of
from sterling.commands.class_source import Field, fields_of, find_class


def config(algorithm: str) -> tuple[str, list[Field]]:
    """The docstring and the fields of an algorithm's Config, inherited ones first."""
    reference = reference_of(algorithm) or algorithm
    path, name = importing.file_of(reference), importing.split(reference)[1]
    found = find_class(path, f"{name}.Config" if name else "Config") if path else None
    known = fields_of(found) if found else None
    if found is None or known is None:
        return _imported(algorithm)
    said = {name: str(value) for name, value in named(algorithm).items()}
    fields = [dataclasses.replace(each, default=said.get(each.name) or each.default)
              for each in known.values()]  # fmt: skip
    return ast.get_docstring(found.node) or "", fields


def _imported(algorithm: str) -> tuple[str, list[Field]]:
    """The same where the source does not show the class, as when it is made by a function: the
    algorithm is imported. There are no comments then."""
    from sterling.algorithms import find

    made = find(algorithm).Config
    fields = [Field(each.name, str(each.type), repr(each.default), "")
              for each in dataclasses.fields(made)]  # fmt: skip
    return (made.__doc__ or "").split("\n")[0], fields


def speaks(algorithm: str) -> bool:
    """Whether an algorithm teaches language models."""
    if algorithm in ALGORITHMS:
        return ".language." in ALGORITHMS[algorithm]
    from sterling.algorithms import find

    made = find(algorithm)
    return bool(made.needs(made.Config()).speaks)


def first_line(algorithm: str) -> str:
    """What an algorithm is, as its file begins, or its name is described."""
    if said := about(algorithm):
        return said
    path = importing.file_of(reference_of(algorithm) or algorithm)
    text = "" if path is None else ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return text.split("\n")[0]


def algorithm_among(parser: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    """Return the algorithm among the words of a command line: the first that is a listed or
    registered name, else the first reference to a file that is there, rather than an option's
    value; None without one."""
    known = set(ALGORITHMS)
    if not known & set(words):
        known |= set(plugins.registered(plugins.ALGORITHMS))
    listed = [word for word in words if word in known]
    switches = {text for action in parser._actions if action.nargs == 0
                for text in action.option_strings}  # fmt: skip
    apart = [word for before, word in zip(["", *words], words, strict=False)
             if not before.startswith("--") or "=" in before or before in switches]  # fmt: skip
    references = [word for word in (*apart, *words)
                  if importing.is_reference(word) and importing.file_of(word)]  # fmt: skip
    return next(iter([*listed, *references]), None)
