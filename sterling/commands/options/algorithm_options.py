"""Find an algorithm on the command line, and read its options: the fields of its Config.

The help of an option is the comment beside the field. The source is parsed, not imported, so that
nothing slow (JAX) is loaded before there is work to do.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
from collections.abc import Sequence

from sterling.algorithms import ALGORITHMS, import_path, preset_fields, preset_summary
from sterling.commands.options.class_source import ConfigField, class_fields, find_class
from sterling.lookup import entry_points, user_imports


def config_fields(algorithm: str) -> tuple[str, list[ConfigField]]:
    """Return the docstring and the fields of an algorithm's Config, inherited fields first."""
    reference = import_path(algorithm) or algorithm
    path, name = user_imports.source_file(reference), user_imports.split_reference(reference)[1]
    found = find_class(path, f"{name}.Config" if name else "Config") if path else None
    known = class_fields(found) if found else None
    if found is None or known is None:
        return _imported_fields(algorithm)
    preset = {name: str(value) for name, value in preset_fields(algorithm).items()}
    fields = [dataclasses.replace(each, default=preset.get(each.name) or each.default)
              for each in known.values()]  # fmt: skip
    return ast.get_docstring(found.node) or "", fields


def _imported_fields(algorithm: str) -> tuple[str, list[ConfigField]]:
    """Return the same by importing the algorithm, if parsing does not find the class (for example,
    if a function makes it). The fields then have no comments."""
    from sterling.algorithms import find

    made = find(algorithm).Config
    fields = [ConfigField(each.name, str(each.type), repr(each.default), "")
              for each in dataclasses.fields(made)]  # fmt: skip
    return (made.__doc__ or "").split("\n")[0], fields


def is_language_algorithm(algorithm: str) -> bool:
    """Whether an algorithm trains language models."""
    if algorithm in ALGORITHMS:
        return ".language." in ALGORITHMS[algorithm]
    from sterling.algorithms import find

    made = find(algorithm)
    return bool(made.needs(made.Config()).speaks)


def algorithm_summary(algorithm: str) -> str:
    """Return a line about an algorithm: its registered description, or its docstring's first lines,
    up to one that ends a sentence."""
    if preset := preset_summary(algorithm):
        return preset
    path = user_imports.source_file(import_path(algorithm) or algorithm)
    text = "" if path is None else ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    lines = text.split("\n\n")[0].split("\n")
    ends = (at for at, line in enumerate(lines, start=1) if line.endswith("."))
    return " ".join(lines[: next(ends, len(lines))])


def find_algorithm(
    parser: argparse.ArgumentParser, words: Sequence[str], in_file: str | None = None
) -> str | None:
    """Return the algorithm among the words of a command line, or None.

    It is the first word that is a listed or registered name; else the first reference to an
    existing file, preferably one that is not the value of an option. ``in_file``: the algorithm
    that a file of settings names; then FILE.py:object is an environment.
    """
    known = set(ALGORITHMS)
    if not known & set(words):
        known |= set(entry_points.find_plugins(entry_points.ALGORITHMS))
    listed = [word for word in words if word in known]
    switches = {text for action in parser._actions if action.nargs == 0
                for text in action.option_strings}  # fmt: skip
    apart = [word for before, word in zip(["", *words], words, strict=False)
             if not before.startswith("--") or "=" in before or before in switches]  # fmt: skip
    references = [word for word in (*apart, *words)
                  if user_imports.is_reference(word)
                  and user_imports.source_file(word)]  # fmt: skip
    if in_file is not None:
        plain = [word for word in references if not user_imports.split_reference(word)[1]]
        return next(iter([*listed, *plain]), in_file)
    if words and not words[0].startswith("-") and words[0] not in references:
        references = []  # the first word names the algorithm: a file after it is an environment
    return next(iter([*listed, *references]), None)
