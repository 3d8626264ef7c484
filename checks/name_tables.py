"""Names by which Sterling loads its modules, and where a text says them.

An import graph does not see these modules: ``train iqn`` imports ``sterling.commands.train`` and
``sterling.algorithms.q_learning.iqn`` through tables of names. The tables are read from their
source, so that a module that cannot be imported stops nobody.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = "sterling"


@functools.cache
def algorithm_modules() -> dict[str, str]:
    """Return the name of each listed algorithm -> its module."""
    values = _assigned("sterling/algorithms/__init__.py")
    presets = [each.value for each in ast.walk(values["GRADIENT_PRESETS"]) if _is_text(each)]
    table = values["ALGORITHMS"]
    assert isinstance(table, ast.Dict)
    shared = [each for key, each in zip(table.keys, table.values, strict=True) if key is None]
    modules = [each.value for part in shared for each in ast.walk(part) if _is_text(each)]
    return _pairs(table) | {name: module for module in modules for name in presets}


@functools.cache
def command_modules() -> dict[str, str]:
    """Return the name of each command -> its module."""
    table = _pairs(_assigned("sterling/commands/__init__.py")["COMMANDS"])
    return {name: f"sterling.commands.{name.replace('-', '_')}" for name in table}


@functools.cache
def environment_modules() -> dict[str, str]:
    """Return the backends that the registry imports by name -> their modules."""
    values = _assigned("sterling/envs/registry.py")
    table = _pairs(values["NATIVE_MODULES"]) | _pairs(values["MODULES"])
    return {name: f"sterling.envs.{module}" for name, module in table.items()}


@functools.cache
def searched_backends() -> frozenset[str]:
    """Return the backends that are asked for every environment without a prefix."""
    order = _assigned("sterling/envs/registry.py")["SEARCH_ORDER"]
    return frozenset(each.value for each in ast.walk(order) if _is_text(each))


@functools.cache
def lazy_names(init: Path) -> dict[str, str]:
    """Return the names that a package imports when they are used -> the module or name that each
    is: what its ``__init__.py`` imports for type checkers alone."""
    found: dict[str, str] = {}
    for block in _parsed(init).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                if isinstance(line, ast.ImportFrom):
                    found |= {
                        each.asname or each.name: f"{line.module}.{each.name}"
                        for each in line.names
                    }
    return found


@functools.cache
def _algorithm_pattern() -> re.Pattern[str]:
    longest = sorted(algorithm_modules(), key=len, reverse=True)  # ppo-lagrangian is not ppo
    return re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, longest))})(?!\w)")


@functools.cache
def _command_pattern() -> re.Pattern[str]:
    longest = "|".join(sorted(command_modules(), key=len, reverse=True))
    return re.compile(rf"(?:^\s*|{PACKAGE}\s+)({longest})(?=\s|$)", re.MULTILINE)


def algorithms_in(text: str) -> set[str]:
    """Return the algorithms that a text names, each as a word of its own."""
    return set(_algorithm_pattern().findall(text))


def commands_in(text: str) -> set[str]:
    """Return the commands that begin a line of a text, or follow the word ``sterling``."""
    return set(_command_pattern().findall(text))


def backends_in(text: str) -> set[str]:
    """Return the backends whose prefix (``maze:``) a text has."""
    return {name for name in environment_modules() if re.search(rf"(?<!\w){name}:", text)}


def _assigned(file: str) -> dict[str, ast.expr]:
    """Return the values of a file's top-level assignments."""
    return {
        target.id: line.value
        for line in _parsed(ROOT / file).body
        if isinstance(line, ast.Assign)
        for target in line.targets
        if isinstance(target, ast.Name)
    }


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def _pairs(table: ast.expr) -> dict[str, str]:
    """Return the entries of a dictionary whose key and value are text."""
    assert isinstance(table, ast.Dict)
    pairs = [(key, each) for key, each in zip(table.keys, table.values, strict=True)]
    return {key.value: each.value for key, each in pairs if _is_text(key) and _is_text(each)}


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
