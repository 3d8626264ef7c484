"""An algorithm's options: the fields of its Config, as its file's text says them.

Their help is the comment beside each field. The text is read, not imported, so that nothing slow
(JAX) is loaded before there is work to do; that is why the options are not made from the dataclass.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterling.algorithms import ALGORITHMS, about, named
from sterling.commands import readers
from sterling.naming import literal


@dataclass(frozen=True)
class Field:
    """One field of a Config, as its source says it."""

    name: str
    kind: str
    default: str
    comment: str

    def add_to(self, group: Any) -> None:
        """Make it an option; without it the preset's or the Config's value stands."""
        plain = {"True": "on", "False": "off", 'float("inf")': "inf", "None": "none"}
        default = plain.get(self.default, self.default.strip('"'))
        options: dict[str, Any] = {"dest": self.name, "default": argparse.SUPPRESS}
        options["help"] = f"{self.comment} ({default})".replace("%", "%%").strip()
        if self.kind == "bool":
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"], options["metavar"] = _reader(self.kind)
        group.add_argument("--" + self.name.replace("_", "-"), **options)


def config(algorithm: str) -> tuple[str, list[Field]]:
    """The docstring and the fields of an algorithm's Config."""
    text = _source(algorithm)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    notes = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    found = next(node for node in classes if node.name == "Config")
    said = {name: str(value) for name, value in named(algorithm).items()}
    fields = [
        Field(
            node.target.id,
            ast.unparse(node.annotation),
            said.get(node.target.id) or ast.get_source_segment(text, node.value) or "",
            notes.get(node.end_lineno or 0, ""),
        )
        for node in found.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
    ]
    return ast.get_docstring(found) or "", fields


def speaks(algorithm: str) -> bool:
    """Whether an algorithm teaches language models."""
    return ".language." in ALGORITHMS[algorithm]


def first_line(algorithm: str) -> str:
    """What an algorithm is, as its file begins, or its name is described."""
    if said := about(algorithm):
        return said
    text = ast.get_docstring(ast.parse(_source(algorithm))) or ""
    return text.split("\n")[0]


def _source(algorithm: str) -> str:
    """The text of an algorithm's file."""
    file = Path(__file__).parents[2].joinpath(*ALGORITHMS[algorithm].split("."))
    return file.with_suffix(".py").read_text(encoding="utf-8")


def _reader(kind: str) -> tuple[Callable[[str], Any], str]:
    """How a field of this type is read, and what stands for its value in the help."""
    known: dict[str, tuple[Callable[[str], Any], str]] = {
        "float": (readers.number, "X"),
        "int": (readers.integer, "N"),
        "str": (str, "TEXT"),
    }
    read, shown = known.get(kind.removesuffix(" | None"), (literal, "VALUE"))
    if not kind.endswith(" | None"):
        return read, shown
    return (lambda text: None if text.lower() == "none" else read(text)), shown
