"""Read a class's fields from Python source, including those of its base classes.

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

from sterling.commands.options import option_values
from sterling.field_types import SIZES_TYPE, plain_type
from sterling.lookup import user_imports
from sterling.lookup.name_suggestions import parse_literal
from sterling.system.mistake import Mistake


@dataclass(frozen=True)
class ConfigField:
    """One field of a Config, as written in its source."""

    name: str
    kind: str
    default: str
    comment: str

    def add_to(self, group: Any, *, ranges: bool = False) -> None:
        """Add the field as an option; without it the preset's or Config's value is used.
        ``ranges``: the value may also be a range to search, which is kept as text."""
        plain = {"True": "on", "False": "off", 'float("inf")': "inf", "None": "none"}
        default = plain.get(self.default, self.default.strip('"'))
        options: dict[str, Any] = {"dest": self.name, "default": argparse.SUPPRESS}
        options["help"] = f"{self.comment} ({default})".replace("%", "%%").strip()
        if self.kind == "bool":
            options["action"] = argparse.BooleanOptionalAction
        else:
            read, options["metavar"] = _value_reader(self.kind)
            options["type"] = _value_or_range(read) if ranges else read
            options["metavar"] += "|RANGE" if ranges else ""
        option = "--" + self.name.replace("_", "-")
        taken = {action.dest for action in group._actions}
        if self.name in taken or option in group._option_string_actions:
            raise Mistake(
                f"The Config has a field {self.name!r}, which is an option of the command. Rename "
                "the field."
            )
        group.add_argument(option, **options)


class FoundClass(NamedTuple):
    """A class in a source file."""

    source: SourceFile
    node: ast.ClassDef


class SourceFile:
    """A parsed file: its top-level statements, the comment on each line, and what it imports."""

    def __init__(self, path: Path):
        text = path.read_text(encoding="utf-8")
        self.path, self.body = path, ast.parse(text).body
        self._lines = [line.encode() for line in io.StringIO(text)]  # columns of ast are of bytes
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.comments = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokens
            if token.type == tokenize.COMMENT
        }
        self.imports = dict(pair for node in self.body for pair in _imported_names(node))

    def segment(self, node: ast.expr) -> str:
        """Return the text of an expression; `ast.get_source_segment` splits the file each time."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines = self._lines[first : last + 1]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"".join(lines).decode()


def find_class(path: Path, name: str) -> FoundClass | None:
    """Return the class called ``name`` ("Config", "Mine.Config") of a file, which may import it or
    give another class a second name; None where the source does not show one."""
    try:
        source = _parse_file(path)
    except (OSError, SyntaxError, ValueError, tokenize.TokenError):
        return None
    first, *rest = name.split(".")
    for node in source.body:
        if isinstance(node, ast.ClassDef) and node.name == first:
            return _nested_class(source, node, rest)
        if isinstance(node, ast.Assign) and first in {_dotted_name(each) for each in node.targets}:
            return _resolve_import(source, ".".join([_dotted_name(node.value) or "?", *rest]))
    return _resolve_import(source, name) if first in source.imports else None


def class_fields(found: FoundClass) -> dict[str, ConfigField] | None:
    """Return a class's fields by name, inherited ones first; None where a base class cannot be
    found in source."""
    known: dict[str, ConfigField] = {}
    for base in reversed(found.node.bases):
        name = _dotted_name(base)
        above = find_class(found.source.path, name) if name else None
        inherited = class_fields(above) if above else None
        if inherited is None:
            return None
        known |= inherited
    for node in found.node.body:
        field = _read_field(found.source, node, known)
        if field is not None:
            known[field.name] = field
    return known


@functools.lru_cache(maxsize=32)
def _parse_file(path: Path) -> SourceFile:
    return SourceFile(path)


def _nested_class(source: SourceFile, node: ast.ClassDef, names: list[str]) -> FoundClass | None:
    """Return the class itself, or one nested in its body; None if there is none."""
    for name in names:
        inner = [each for each in node.body if isinstance(each, ast.ClassDef) and each.name == name]
        if not inner:
            return None
        node = inner[0]
    return FoundClass(source, node)


def _resolve_import(source: SourceFile, name: str) -> FoundClass | None:
    """Return the class that ``name`` refers to in a file: one defined there, or one in the module
    whose name is the longest prefix of the imported name."""
    first, *rest = name.split(".")
    if first not in source.imports:
        own = [node for node in source.body if isinstance(node, ast.ClassDef)]
        return find_class(source.path, name) if first in {node.name for node in own} else None
    whole = [*source.imports[first].split("."), *rest]
    for count in range(len(whole) - 1, 0, -1):
        path = _module_file(whole[:count], source.path.parent)
        if path is not None:
            return find_class(path, ".".join(whole[count:]))
    return None


def _module_file(module: list[str], beside: Path) -> Path | None:
    """Return a module's file; a name that begins with empty parts is relative to ``beside``."""
    up = next((i for i, part in enumerate(module) if part), len(module))
    if not up:
        return user_imports.source_file(".".join(module), beside)
    place = beside.parents[up - 2] if up > 1 else beside
    path = place.joinpath(*module[up:]) if up < len(module) else place / "__init__"
    options = (path.with_suffix(".py"), path / "__init__.py")
    return next((each for each in options if each.is_file()), None)


def _imported_names(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield the names that an import statement defines, and what each refers to; for relative
    imports with an empty part for each dot."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (first, first)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (f"{node.module}." if node.module else "")
        for alias in node.names:
            yield alias.asname or alias.name, module + alias.name


def _read_field(
    source: SourceFile, node: ast.stmt, known: dict[str, ConfigField]
) -> ConfigField | None:
    """Return the field that a statement of a class body declares, or None. A statement without a
    type changes an inherited field."""
    comment = source.comments.get(node.end_lineno or 0, "")
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        default = source.segment(node.value)
        return ConfigField(node.target.id, _plain_type(source, node.annotation), default, comment)
    names = [_dotted_name(each) for each in node.targets] if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.Assign) and len(names) == 1 and names[0] in known:
        before = known[names[0]]
        default = source.segment(node.value)
        return replace(before, default=default, comment=comment or before.comment)
    return None


def _plain_type(source: SourceFile, node: ast.expr) -> str:
    """Return the plain type of an annotation, after resolving names that the file assigns."""
    own = {_dotted_name(target): each.value for each in source.body if isinstance(each, ast.Assign)
           for target in each.targets}  # fmt: skip
    name = ast.unparse(node).removesuffix(" | None")
    optional = " | None" if ast.unparse(node).endswith(" | None") else ""
    return plain_type((ast.unparse(own[name]) if name in own else name) + optional)


def _dotted_name(node: ast.expr) -> str:
    """Return the text of an expression of the form ``a.b.c``; "" for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted_name(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


def _value_or_range(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a function that parses a value, and returns a range (LOW..HIGH, A|B) as it is."""
    return lambda text: text if ".." in text or "|" in text else read(text)


def _value_reader(kind: str) -> tuple[Callable[[str], Any], str]:
    """Return the function that parses a value of this type, and its placeholder in the help."""
    known: dict[str, tuple[Callable[[str], Any], str]] = {
        "float": (option_values.number_or_schedule, "X"),
        "int": (option_values.integer, "N"),
        "str": (str, "TEXT"),
        SIZES_TYPE: (option_values.layer_sizes, "N[,N...]"),
    }
    read, shown = known.get(kind.removesuffix(" | None"), (parse_literal, "VALUE"))
    if not kind.endswith(" | None"):
        return read, shown
    return (lambda text: None if text.lower() == "none" else read(text)), shown
