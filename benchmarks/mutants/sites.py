"""Find the places where a bug can be planted, and draw a sample of them from a seed.

Left out are docstrings, annotations, decorators, defaults (settings are choices, not equations),
class bodies, messages of errors, and whatever only speaks: strings, notices, names for a log.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from operators import Surroundings, changes

SPEAKING = ("print", "tell", "note", "warn", "say", "line", "info", "debug", "Mistake")
SILENT = ("__repr__", "__str__", "__format__", "describe")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One planted bug: the ``place``-th node of ``function`` becomes its ``which``-th change."""

    file: str  # below sterling/
    function: str  # qualified name of the outermost function
    operator: str
    place: int  # index in the walk over the function
    which: int  # index among the node's changes
    line: int
    statement: int  # line of the innermost statement around it
    before: str
    after: str
    digest: str  # of the function's text, so that an edited function is tried again

    @property
    def folder(self) -> str:
        """The part of Sterling that it lies in."""
        return self.file.split("/")[0]

    @property
    def name(self) -> str:
        """A name that stays while the function stays: file, function, operator, hash."""
        text = f"{self.function}|{self.place}|{self.which}|{self.before}|{self.after}"
        short = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{self.file}::{self.function}::{self.operator.replace(' ', '-')}::{short}"


def functions(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Yield the qualified name and node of every function and method; of a name once, at first."""
    seen = set()
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        before = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in inside:
            if isinstance(each, ast.FunctionDef) and each.name not in SILENT:
                name = before + each.name
                if name not in seen and not _is_overload(each):
                    seen.add(name)
                    yield name, each


def _is_overload(function: ast.FunctionDef) -> bool:
    names = {getattr(d, "attr", getattr(d, "id", "")) for d in function.decorator_list}
    return bool(names & {"overload", "setter", "abstractmethod"})


def nodes(function: Any) -> list[tuple[ast.AST, ast.AST, str, int | None]]:
    """Return (node, parent, field, index) of every node whose change could be a bug."""
    found: list[tuple[ast.AST, ast.AST, str, int | None]] = []
    for index, statement in enumerate(function.body):
        _gather(statement, function, "body", index, found)
    return found


def _gather(
    node: ast.AST, parent: ast.AST, field: str, index: int | None, found: list[Any]
) -> None:
    if _only_speaks(node):
        return
    found.append((node, parent, field, index))
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and name == "args":
            continue
        if isinstance(value, list):
            for place, each in enumerate(value):
                if isinstance(each, ast.AST):
                    _gather(each, node, name, place, found)
        elif isinstance(value, ast.AST):
            _gather(value, node, name, None, found)


def _only_speaks(node: ast.AST) -> bool:
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    called = node.value if isinstance(node, ast.Expr) else node
    if isinstance(called, ast.Call):
        name = getattr(called.func, "attr", getattr(called.func, "id", ""))
        return name in SPEAKING
    return False


def every(root: Path, files: Iterable[str]) -> list[Mutant]:
    """Return all mutants of the files (paths below ``root``, the package)."""
    found = []
    for file in files:
        tree = ast.parse((root / file).read_text())
        for name, function in functions(tree):
            found += _of_function(file, name, tree, function)
    return found


def _of_function(file: str, name: str, tree: ast.Module, function: Any) -> Iterator[Mutant]:
    around = Surroundings(tree, function)
    digest = hashlib.sha256(ast.unparse(function).encode()).hexdigest()[:12]
    statement = function.lineno
    for place, (node, *_) in enumerate(nodes(function)):
        statement = node.lineno if isinstance(node, ast.stmt) else statement
        for which, (operator, changed) in enumerate(changes(node, around)):
            before, after = ast.unparse(node), ast.unparse(changed)
            if before != after:
                line = getattr(node, "lineno", function.lineno)
                short = [" ".join(text.split())[:160] for text in (before, after)]
                yield Mutant(file, name, operator, place, which, line, statement, *short, digest)


def planted(root: Path, mutant: Mutant) -> ast.Module:
    """Return the file's syntax tree with the bug in it; lines keep their numbers."""
    tree = ast.parse((root / mutant.file).read_text())
    function = dict(functions(tree))[mutant.function]
    around = Surroundings(tree, function)
    node, parent, field, index = nodes(function)[mutant.place]
    changed = copy.deepcopy(list(changes(node, around))[mutant.which][1])
    ast.copy_location(changed, node)
    ast.fix_missing_locations(changed)
    if index is None:
        setattr(parent, field, changed)
    else:
        getattr(parent, field)[index] = changed
    return tree


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw ``count`` of one folder's mutants: every operator in turn, files as evenly as can be.

    Order depends on the seed and on each mutant's name alone, so an edited file moves no others.
    """

    def chance(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed}|{mutant.name}".encode()).hexdigest()

    queues: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in sorted(mutants, key=chance):
        queues[mutant.operator].append(mutant)
    chosen: list[Mutant] = []
    files: dict[str, int] = defaultdict(int)
    places = set()
    while len(chosen) < count and any(queues.values()):
        for operator in sorted(queues):
            waiting = [m for m in queues[operator] if (m.file, m.function, m.line) not in places]
            waiting = waiting or queues[operator]
            if waiting and len(chosen) < count:
                best = min(waiting, key=lambda m: files[m.file])
                queues[operator].remove(best)
                chosen.append(best)
                files[best.file] += 1
                places.add((best.file, best.function, best.line))
    return chosen
