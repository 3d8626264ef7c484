"""Which modules of the package import which, also where a name or a path leads to a module."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable
from pathlib import Path

import grimp

from checks import name_tables
from checks.name_tables import PACKAGE, ROOT

QUOTED_MODULE = re.compile(rf"[\"']({PACKAGE}(?:\.\w+)+)[\"']")
QUOTED_FILE = re.compile(r"[\"'](\w+\.py)[\"']")
DOTTED = re.compile(rf"(?<![\w.]){PACKAGE}(?:\.[A-Za-z_]\w*)+")
FROM_IMPORT = re.compile(rf"from ({PACKAGE}[\w.]*) import \(?([\w, \n]+)")


@functools.cache
def build() -> grimp.ImportGraph:
    """Return the import graph of the package, with the edges that text makes.

    They are: a package's names that are imported when they are used; the environments that are
    searched; a module or the file of one in quotes. The table of algorithms makes none:
    ``selection.py`` follows their names.
    """
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    known = graph.modules
    files = {file_of(module).name: module for module in known}
    for module in sorted(known):
        text = file_of(module).read_text("utf-8")
        found = {files[name] for name in QUOTED_FILE.findall(text) if name in files}
        if module != "sterling.algorithms":
            found |= {name for name in QUOTED_MODULE.findall(text) if name in known}
        if file_of(module).name == "__init__.py":
            lazy = name_tables.lazy_names(file_of(module)).values()
            found |= {nearest(name, known) for name in lazy}
        if module == "sterling.envs.registry":
            named = name_tables.environment_modules()
            found |= {named[name] for name in name_tables.searched_backends() if name in named}
        for imported in found - {module}:
            graph.add_import(importer=module, imported=imported)
    return graph


@functools.cache
def modules() -> frozenset[str]:
    """Return the names of all modules of the package."""
    return frozenset(build().modules)


def affected(changed: Iterable[str]) -> set[str]:
    """Return modules that changed and all that import one of them, however indirectly. A package's
    ``__init__.py`` is executed for each of its modules, so with it they all count as changed."""
    graph, found = build(), set()
    for module in changed:
        found |= {module} | graph.find_downstream_modules(module)
        if file_of(module).name == "__init__.py":
            inside = graph.find_descendants(module)
            found |= inside
            for each in inside:
                found |= graph.find_downstream_modules(each)
    return found


def file_of(module: str) -> Path:
    """Return the file of a module."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def module_of(file: str) -> str:
    """Return the module of a file (a path from the repository's root)."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def nearest(name: str, known: Collection[str]) -> str:
    """Return the module among ``known`` that a dotted name is, or is inside of."""
    parts = name.split(".")
    heads = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((head for head in heads if head in known), PACKAGE)


@functools.cache
def resolve(name: str) -> frozenset[str]:
    """Return the modules that a dotted name leads to: ``sterling.data.Dataset`` to its package and
    to the module from which the package takes it."""
    found = nearest(name, modules())
    rest = name.removeprefix(found).strip(".").split(".")[0]
    lazy = name_tables.lazy_names(file_of(found)) if file_of(found).name == "__init__.py" else {}
    further = resolve(lazy[rest]) if rest in lazy else frozenset()
    return further | {found}


def modules_in(text: str) -> set[str]:
    """Return the modules that Python code in a text imports or names."""
    names = set(DOTTED.findall(text)) if PACKAGE in text else set()
    for package, imported in FROM_IMPORT.findall(text):
        names |= {f"{package}.{each.split()[0]}" for each in imported.split(",") if each.strip()}
    return {module for name in names for module in resolve(name)}
