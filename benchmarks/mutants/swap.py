"""Put changed code in place of running functions, without importing anything again.

A function object keeps its identity and gets another code object, so every place that already
holds it (imports by name, tables, jitted wrappers, methods of modules) runs the changed code.
"""

from __future__ import annotations

import ast
import builtins
import gc
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType

from sites import functions

HIT = "_mutants_hit"
Living = dict[str, dict[str, list[FunctionType]]]


def living(package: Path) -> Living:
    """Return {file: {qualified name: function objects}} of everything imported from ``package``."""
    found: Living = defaultdict(lambda: defaultdict(list))
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            path = Path(each.__code__.co_filename)
            if path.is_relative_to(package):
                file = str(path.relative_to(package))
                found[file][each.__code__.co_qualname].append(each)
    return found


def exchange(
    tree: ast.Module, path: Path, names: list[str], alive: dict[str, list[FunctionType]]
) -> int:
    """Give the functions ``names`` (and those made inside them) the code of ``tree``.

    Returns how many function objects changed; 0 says that the file was not imported.
    """
    wanted = set(names)
    module = compile(tree, str(path), "exec", flags=0, dont_inherit=True)
    changed = 0
    for code in _codes(module):
        outermost = code.co_qualname.split(".<locals>")[0]
        if outermost not in wanted:
            continue
        for each in alive.get(code.co_qualname, []):
            if each.__code__.co_freevars == code.co_freevars:
                each.__code__ = code
                changed += 1
    return changed


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def watch(
    package: Path, files: list[str], alive: Living, heard: Callable[[str, int], None]
) -> None:
    """Make every statement inside the files' functions report (file, line) before it runs.

    Under ``jax.jit`` a statement runs while the program is traced.
    """
    setattr(builtins, HIT, heard)
    for file in files:
        tree = ast.parse((package / file).read_text())
        names = []
        for name, function in functions(tree):
            _report_each(function, file)
            names.append(name)
        ast.fix_missing_locations(tree)
        exchange(tree, package / file, names, alive[file])


def _report_each(function: ast.AST, file: str) -> None:
    for node in list(ast.walk(function)):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
                setattr(node, field, list(_reporting(statements, file)))


def _reporting(statements: list[ast.stmt], file: str) -> Iterator[ast.stmt]:
    for statement in statements:
        if not isinstance(statement, (ast.Global, ast.Nonlocal)):
            line = statement.lineno
            call = ast.Call(ast.Name(HIT, ast.Load()), [ast.Constant(file), ast.Constant(line)], [])
            yield ast.copy_location(ast.Expr(call), statement)
        yield statement
