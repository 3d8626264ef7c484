"""What a Python file defines at its top level: the text and the names inside each definition."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Iterable
from pathlib import Path

WORD = re.compile(r"[^\s/\"'`()\[\],;{}]+")  # of a path too: its folders and its file


@dataclasses.dataclass
class Part:
    """Text constants and dotted names of a piece of code."""

    texts: list[str] = dataclasses.field(default_factory=list)
    names: set[str] = dataclasses.field(default_factory=set)

    @functools.cached_property
    def text(self) -> str:
        """All text constants, one after the other."""
        return "\n".join(self.texts)


@dataclasses.dataclass
class Definition:
    """A function, a class or an assigned name."""

    head: Part  # decorators and defaults, or the assigned value
    body: Part  # empty for an assigned name
    is_autouse: bool = False  # a fixture that every test of the file uses


@dataclasses.dataclass
class Source:
    """A Python file that was read."""

    definitions: dict[str, Definition]
    aliases: dict[str, str]  # a name -> what was imported as that
    imports: set[str]  # dotted names, also of imports inside functions
    whole: Part

    @functools.cached_property
    def words(self) -> frozenset[str]:
        """The words of its text constants, paths taken apart."""
        return frozenset(WORD.findall(self.whole.text))

    def tests(self) -> Iterable[str]:
        """Return the names of its test functions."""
        return [name for name in self.definitions if name.startswith("test")]


class _Reader(ast.NodeVisitor):
    def __init__(self, source: Source):
        self.source, self.part = source, Part()

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.part.texts.append(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        self.part.names.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            self.part.names.add(".".join([inner.id, *reversed(chain)]))
        else:
            self.part.names |= {f".{each}" for each in chain}
            self.visit(inner)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring is no use of what it names
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.part.names |= {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
        for each in (*node.decorator_list, node.args, *node.body):
            self.visit(each)

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self.source.imports.add(each.name)
            first = each.name.split(".")[0]
            self.source.aliases[each.asname or first] = each.name if each.asname else first

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            name = f"{node.module or ''}.{each.name}".strip(".")
            self.source.imports.add(name)
            self.source.aliases[each.asname or each.name] = name

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func).split(".")[-1]
        for each in node.args if called == "import_module" else ():
            if isinstance(each, ast.Constant):
                self.source.imports.add(str(each.value))
        if called in ("usefixtures", "getfixturevalue"):
            self.part.names |= {str(each.value) for each in node.args if hasattr(each, "value")}
        self.generic_visit(node)

    def read(self, nodes: Iterable[ast.AST]) -> Part:
        """Return the text and names of some nodes."""
        self.part = Part()
        for node in nodes:
            self.visit(node)
        self.source.whole.texts += self.part.texts
        self.source.whole.names |= self.part.names
        return self.part


@functools.cache
def read(file: Path) -> Source:
    """Return what a Python file defines; a file with an error of syntax defines nothing."""
    source = Source({}, {}, set(), Part())
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except SyntaxError:
        return source
    reader = _Reader(source)
    for node in tree.body:
        _define(node, reader, source)
    return source


def _define(node: ast.stmt, reader: _Reader, source: Source) -> None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        head = reader.read((*node.decorator_list, node.args))
        body = reader.read(node.body)
        body.names |= {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
        autouse = any("autouse=True" in ast.unparse(each) for each in node.decorator_list)
        source.definitions[node.name] = Definition(head, body, autouse)
    elif isinstance(node, ast.ClassDef):
        head = reader.read((*node.decorator_list, *node.bases))
        source.definitions[node.name] = Definition(head, reader.read(node.body))
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        part = reader.read([node.value] if node.value else [])
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for name in (each.id for to in targets for each in ast.walk(to) if hasattr(each, "id")):
            known = source.definitions.setdefault(name, Definition(Part(), Part())).head
            known.texts += part.texts
            known.names |= part.names
    else:
        reader.read([node])
