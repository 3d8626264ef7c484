"""What one test uses: modules of the package, and names by which modules are loaded.

A test uses its own code, the fixtures and helpers that it names, and what those name, also in
files beside the tests. Of the names of algorithms it is kept where they stand, because a table of
all algorithms is also used by a test of one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from checks import name_tables, package_graph, tree_files
from checks.definitions import Part
from checks.name_tables import PACKAGE

OWN, NEAR, FAR = "own", "near", "far"
ALL_ALGORITHMS = {"sterling.algorithms.ALGORITHMS", "sterling.algorithms.GRADIENT_PRESETS"}


@dataclasses.dataclass
class Mentions:
    """What a test or a file uses."""

    modules: set[str] = dataclasses.field(default_factory=set)
    commands: set[str] = dataclasses.field(default_factory=set)
    backends: set[str] = dataclasses.field(default_factory=set)
    # where -> algorithms: in the test itself; in its parameters, fixtures and helpers; in
    # tables of other files
    algorithms: dict[str, set[str]] = dataclasses.field(
        default_factory=lambda: {OWN: set(), NEAR: set(), FAR: set()}
    )

    def add(self, where: str, found: _PartMentions) -> None:
        """Add what a piece of code mentions."""
        self.modules |= found.modules
        self.commands |= found.commands
        self.backends |= found.backends
        self.algorithms[where] |= found.algorithms
        self.algorithms[FAR] |= found.listed


@dataclasses.dataclass(frozen=True)
class _PartMentions:
    modules: frozenset[str]
    commands: frozenset[str]
    backends: frozenset[str]
    algorithms: frozenset[str]
    listed: frozenset[str]  # through the package's table of all algorithms


@functools.cache
def _algorithms_by_module() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, module in name_tables.algorithm_modules().items():
        found.setdefault(module, set()).add(name)
    return found


_read: dict[int, tuple[Part, _PartMentions]] = {}  # the part is kept, so that its id stays its own


def _of_part(file: str, part: Part) -> _PartMentions:
    if id(part) not in _read:
        _read[id(part)] = part, _find(file, part)
    return _read[id(part)][1]


def _find(file: str, part: Part) -> _PartMentions:
    dotted = [_full_name(file, name) for name in part.names]
    names = {name for name in dotted if name.split(".")[0] == PACKAGE}
    modules = {module for name in names for module in package_graph.resolve(name)}
    modules |= package_graph.modules_in(part.text)
    algorithms = name_tables.algorithms_in(part.text)
    listed = set(name_tables.algorithm_modules()) if ALL_ALGORITHMS & names else set()
    for module in modules:
        algorithms |= _algorithms_by_module().get(module, set())
    commands = name_tables.commands_in(part.text)
    backends = name_tables.backends_in(part.text)
    return _PartMentions(*map(frozenset, (modules, commands, backends, algorithms, listed)))


def _full_name(file: str, name: str) -> str:
    first, dot, rest = name.partition(".")
    return tree_files.source(file).aliases.get(first, first) + dot + rest


@functools.cache
def of_file(file: str) -> Mentions:
    """Return what a file's code uses, and the files that it imports or runs."""
    found = Mentions()
    for each in tree_files.reached(file):
        source = tree_files.source(each)
        found.add(OWN, _of_part(each, source.whole))
        imported = {name for name in source.imports if name.split(".")[0] == PACKAGE}
        found.modules |= {module for name in imported for module in package_graph.resolve(name)}
    return found


def of_test(file: str, test: str) -> Mentions:
    """Return what one test function uses."""
    source, found = tree_files.source(file), Mentions()
    definition = source.definitions[test]
    found.add(OWN, _of_part(file, definition.body))
    found.add(NEAR, _of_part(file, definition.head))
    found.add(NEAR, _of_part(file, Part([tree_files.page_code(file)])))
    done: set[tuple[str, str]] = {(file, test)}
    names = definition.head.names | definition.body.names | {"pytestmark"}
    todo = list(_used(file, names | _autouse(file)))
    while todo:
        at, name = todo.pop()
        if (at, name) in done:
            continue
        done.add((at, name))
        used = tree_files.source(at).definitions[name]
        is_table = at != file and not at.endswith("conftest.py")
        found.add(FAR if is_table else NEAR, _of_part(at, used.head))
        found.add(NEAR, _of_part(at, used.body))
        todo += _used(at, used.head.names | used.body.names)
    return found


def _autouse(file: str) -> set[str]:
    places = (file, *_conftests(file))
    return {
        name
        for place in places
        for name, each in tree_files.source(place).definitions.items()
        if each.is_autouse
    }


def _used(file: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the definitions beside the package that names in a file lead to."""
    for name in names:
        first = name.split(".")[0]
        places = [file, *_conftests(file)]
        place = next((at for at in places if first in tree_files.source(at).definitions), None)
        if place:
            yield place, first
        elif first in tree_files.source(file).aliases:
            yield from _imported(file, _full_name(file, name))


def _imported(file: str, dotted: str) -> Iterator[tuple[str, str]]:
    found = tree_files.imported(file, dotted)
    if found is None:
        return
    known = tree_files.source(found).definitions
    used = [part for part in dotted.split(".") if part in known]
    yield from ((found, name) for name in (used[-1:] or known))


@functools.cache
def _conftests(file: str) -> tuple[str, ...]:
    folders = file.split("/")[:-1]
    places = ["/".join([*folders[:end], "conftest.py"]) for end in range(len(folders), 0, -1)]
    return tuple(each for each in places if each in tree_files.files() and each != file)
