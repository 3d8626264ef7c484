"""Find the names that installed packages register: entry points of the groups
``sterling.algorithms``, ``sterling.worlds``, ``sterling.tasks`` and ``sterling.sources``. See
docs/extending.md."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import metadata
from typing import NamedTuple

from sterling.system.terminal_messages import print_notice

ALGORITHMS, WORLDS, TASKS = "sterling.algorithms", "sterling.worlds", "sterling.tasks"
SOURCES = "sterling.sources"


class Plugin(NamedTuple):
    """An object that a package registers under a name."""

    word: str  # its reference: "package.module" or "package.module:object"
    package: str  # the distribution, as "my-package 1.0"


@functools.cache
def find_plugins(group: str) -> dict[str, Plugin]:
    """Return the plugins that installed packages register in a group, by name. If two packages
    register the same name, the first is used and a line says so."""
    found: dict[str, Plugin] = {}
    for point in metadata.entry_points(group=group):
        package = "?" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        plugin = Plugin(point.value.replace(" ", ""), package)
        kept = found.setdefault(point.name, plugin)
        if kept != plugin:
            print_notice(
                f"{point.name!r} is registered by {kept.package} and by {package}: the first is "
                f"used, {plugin.word} is not"
            )
    return found


def warn_of_clashes(group: str, known: Iterable[str]) -> None:
    """Print a line for each registered name that Sterling itself uses; Sterling's is used."""
    for name in sorted(set(find_plugins(group)) & set(known)):
        plugin = find_plugins(group)[name]
        print_notice(
            f"{name!r} is Sterling's own; that of {plugin.package} ({plugin.word}) is not used"
        )
