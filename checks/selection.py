"""Which tests a change can affect.

A test file is selected if it imports a module that changed, or one that imports it, however
indirectly. Modules that are loaded by name select the tests that say their names; of tests with an
algorithm in the identity of each case, the cases of that algorithm.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from checks import mentions, name_tables, package_graph, tree_files
from checks.mentions import FAR, NEAR, OWN, Mentions
from checks.name_tables import PACKAGE, ROOT

EVERYTHING = re.compile(
    r"(.*/)?conftest\.py|Makefile|pyproject\.toml|requirements/.*|\.ci/.*|tests/quick_cases\.json"
)
ORACLES = "tests/contract/oracles/"


@dataclasses.dataclass(frozen=True)
class Cases:
    """Which cases of a test function run."""

    whole: bool = False  # all of them
    algorithms: tuple[str, ...] = ()  # those whose identity names one of these
    unnamed: bool = False  # those whose identity names no algorithm

    def keeps(self, identity: str | None) -> bool:
        """Whether a case runs; ``identity``: what a parametrised test has in brackets."""
        named = name_tables.algorithms_in(identity or "")
        if self.whole or not named:
            return self.whole or self.unnamed
        return bool(named & set(self.algorithms))


Selection = dict[str, dict[str, Cases]]  # test file -> test function ("*": all) -> its cases
WHOLE_FILE = {"*": Cases(whole=True)}


@dataclasses.dataclass(frozen=True)
class _Changes:
    beside: frozenset[str]  # files beside the package
    modules: frozenset[str]  # affected modules of the package, without algorithms
    algorithms: frozenset[str]
    oracles: frozenset[str]  # algorithms whose second writing is affected
    commands: frozenset[str]
    backends: frozenset[str]


def select(changed: Iterable[str], among: Iterable[str] | None = None) -> Selection | None:
    """Return the tests that changed files can affect; None for all tests.

    ``changed``: paths from the repository's root; ``among``: test files to choose from (None: all).
    """
    paths = sorted(changed)
    if any(EVERYTHING.fullmatch(path) for path in paths):
        return None
    changes = _changes(paths)
    found = {file: _of_file(file, changes) for file in among or tree_files.tests()}
    return {file: cases for file, cases in found.items() if cases}


def _changes(paths: list[str]) -> _Changes:
    inside = [path for path in paths if path.startswith(f"{PACKAGE}/")]
    affected = package_graph.affected({module for path in inside for module in _modules(path)})
    by_name = name_tables.algorithm_modules()
    beside = {path for path in paths if path not in inside}
    oracles = {path for path in tree_files.files() if path.startswith(ORACLES)} if beside else ()
    reached = {path for path in oracles if tree_files.reached(path) & beside}
    return _Changes(
        beside=frozenset(beside) | {path for path in inside},
        modules=frozenset(affected - set(by_name.values())),
        algorithms=_named(by_name, affected),
        oracles=frozenset(_of_oracles({PurePosixPath(path).stem for path in reached})),
        commands=_named(name_tables.command_modules(), affected),
        backends=_named(name_tables.environment_modules(), affected),
    )


def _named(table: dict[str, str], modules: set[str]) -> frozenset[str]:
    return frozenset(name for name, module in table.items() if module in modules)


def _of_oracles(stems: set[str]) -> set[str]:
    table = name_tables.algorithm_modules()
    return {name for name, module in table.items() if module.split(".")[-1] in stems}


def _modules(path: str) -> set[str]:
    """Return the modules that a file of the package is, or that read it: those with its name in
    their text, and its folder's. A file that is gone counts as its folder."""
    modules = package_graph.modules()
    if path.endswith(".py"):
        return {package_graph.nearest(package_graph.module_of(path), modules)}
    name = PurePosixPath(path).name
    texts = {module: package_graph.file_of(module).read_text("utf-8") for module in modules}
    folder = PurePosixPath(path).parent
    while not list((ROOT / folder).glob("*.py")):
        folder = folder.parent
    beside = {module for module in modules if package_graph.file_of(module).parent == ROOT / folder}
    return {module for module, text in texts.items() if name in text} | beside


def _of_file(file: str, changes: _Changes) -> dict[str, Cases]:
    used = mentions.of_file(file)
    reached = tree_files.reached(file)
    if reached & changes.beside or used.modules & changes.modules:
        return dict(WHOLE_FILE)
    if any(_reads(each, path) for each in reached for path in changes.beside):
        return dict(WHOLE_FILE)
    if not changes.algorithms | changes.oracles | changes.modules:
        return {}
    tests = {test: _of_test(file, test, changes) for test in tree_files.source(file).tests()}
    return {test: cases for test, cases in tests.items() if cases}


def _reads(reader: str, path: str) -> bool:
    """Whether a file reads a changed one. Measurements record the package's source as a whole,
    which is not what their tests are about."""
    is_recorded = path.startswith(f"{PACKAGE}/") and reader.startswith("benchmarks/")
    return not is_recorded and tree_files.reads(reader, path)


def _of_test(file: str, test: str, changes: _Changes) -> Cases | None:
    used = mentions.of_test(file, test)
    by_name = used.commands & changes.commands or used.backends & changes.backends
    if by_name or used.modules & changes.modules:
        return Cases(whole=True)
    names = set(changes.algorithms)
    if file.startswith("tests/contract/"):
        names |= changes.oracles
    return _cases(used, names)


def _cases(used: Mentions, names: set[str]) -> Cases | None:
    """Return the cases of a test that concern algorithms; None if it concerns none of them."""
    own, near, far = (used.algorithms[where] & names for where in (OWN, NEAR, FAR))
    if own:
        return Cases(whole=True)
    if not near | far:
        return None
    picks = used.algorithms[OWN] | used.algorithms[NEAR]  # from a table of all, by name
    return Cases(algorithms=tuple(sorted(near | far)), unnamed=bool(near) or not picks)
