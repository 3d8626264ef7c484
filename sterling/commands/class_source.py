"""Read a class's fields from Python source, those of its base classes included.

Nothing is imported: files are parsed, and a base class is followed to the file that it is imported
from. So the command line knows an algorithm's settings without loading JAX.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from sterling import importing
from sterling.commands import readers
from sterling.field_types import plain
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


class Found(NamedTuple):
    """A class in a source file."""

    source: Source
    node: ast.ClassDef


class Source:
    """A parsed file: its top-level statements, the comment on each line, and what it imports."""

    def __init__(self, path: Path):
        text = path.read_text(encoding="utf-8")
        self.path, self.text, self.body = path, text, ast.parse(text).body
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.comments = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokens
            if token.type == tokenize.COMMENT
        }
        self.imports = dict(pair for node in self.body for pair in _imported(node))


def find_class(path: Path, name: str) -> Found | None:
    """Return the class called ``name`` ("Config", "Mine.Config") of a file, which may import it or
    give another class a second name; None where the source does not show one."""
    try:
        source = _parsed(path)
    except (OSError, SyntaxError, ValueError, tokenize.TokenError):
        return None
    first, *rest = name.split(".")
    for node in source.body:
        if isinstance(node, ast.ClassDef) and node.name == first:
            return _inside(source, node, rest)
        if isinstance(node, ast.Assign) and first in {_dotted(each) for each in node.targets}:
            return _follow(source, ".".join([_dotted(node.value) or "?", *rest]))
    return _follow(source, name) if first in source.imports else None


def fields_of(found: Found) -> dict[str, Field] | None:
    """Return a class's fields by name, inherited ones first; None where a base class cannot be
    found in source."""
    known: dict[str, Field] = {}
    for base in reversed(found.node.bases):
        name = _dotted(base)
        above = find_class(found.source.path, name) if name else None
        inherited = fields_of(above) if above else None
        if inherited is None:
            return None
        known |= inherited
    for node in found.node.body:
        field = _field(found.source, node, known)
        if field is not None:
            known[field.name] = field
    return known


@functools.lru_cache(maxsize=32)
def _parsed(path: Path) -> Source:
    return Source(path)


def _inside(source: Source, node: ast.ClassDef, names: list[str]) -> Found | None:
    """The class itself, or one in its body."""
    for name in names:
        inner = [each for each in node.body if isinstance(each, ast.ClassDef) and each.name == name]
        if not inner:
            return None
        node = inner[0]
    return Found(source, node)


def _follow(source: Source, name: str) -> Found | None:
    """The class that ``name`` stands for in a file: its own, or in the module that the longest
    part of the name is the name of."""
    first, *rest = name.split(".")
    if first not in source.imports:
        own = [node for node in source.body if isinstance(node, ast.ClassDef)]
        return find_class(source.path, name) if first in {node.name for node in own} else None
    whole = [*source.imports[first].split("."), *rest]
    for count in range(len(whole) - 1, 0, -1):
        path = _file(whole[:count], source.path.parent)
        if path is not None:
            return find_class(path, ".".join(whole[count:]))
    return None


def _file(module: list[str], beside: Path) -> Path | None:
    """A module's file; a name that begins with empty parts is relative to ``beside``."""
    up = next((i for i, part in enumerate(module) if part), len(module))
    if not up:
        return importing.file_of(".".join(module), beside)
    place = beside.parents[up - 2] if up > 1 else beside
    path = place.joinpath(*module[up:]) if up < len(module) else place / "__init__"
    options = (path.with_suffix(".py"), path / "__init__.py")
    return next((each for each in options if each.is_file()), None)


def _imported(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """The names that an import statement gives, and what each stands for; of relative imports with
    an empty part for each dot."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (first, first)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (f"{node.module}." if node.module else "")
        for alias in node.names:
            yield alias.asname or alias.name, module + alias.name


def _field(source: Source, node: ast.stmt, known: dict[str, Field]) -> Field | None:
    """The field that a statement of a class's body declares; of one without a type what it changes
    in an inherited field."""
    comment = source.comments.get(node.end_lineno or 0, "")
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        default = ast.get_source_segment(source.text, node.value) or ""
        return Field(node.target.id, _kind(source, node.annotation), default, comment)
    names = [_dotted(each) for each in node.targets] if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.Assign) and len(names) == 1 and names[0] in known:
        before = known[names[0]]
        default = ast.get_source_segment(source.text, node.value) or ""
        return replace(before, default=default, comment=comment or before.comment)
    return None


def _kind(source: Source, node: ast.expr) -> str:
    """The plain type behind an annotation; of a name that the file itself gives to an annotated
    type, what that stands for."""
    own = {_dotted(target): each.value for each in source.body if isinstance(each, ast.Assign)
           for target in each.targets}  # fmt: skip
    name = ast.unparse(node).removesuffix(" | None")
    optional = " | None" if ast.unparse(node).endswith(" | None") else ""
    return plain((ast.unparse(own[name]) if name in own else name) + optional)


def _dotted(node: ast.expr) -> str:
    """``a.b.c`` of an expression; "" where it is something else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


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
