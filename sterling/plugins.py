"""Names that installed packages register: entry points of the groups ``sterling.algorithms``,
``sterling.worlds``, ``sterling.tasks`` and ``sterling.sources``. See docs/extending.md."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import metadata
from typing import NamedTuple

from sterling.notice import say

ALGORITHMS, WORLDS, TASKS = "sterling.algorithms", "sterling.worlds", "sterling.tasks"
SOURCES = "sterling.sources"


class Plugin(NamedTuple):
    """What a package registers under a name."""

    word: str  # the reference: "package.module" or "package.module:object"
    package: str  # the distribution, as "my-package 1.0"


@functools.cache
def registered(group: str) -> dict[str, Plugin]:
    """Return what installed packages register in a group, by name; of two packages that register
    one name the first counts, which is said in a line."""
    found: dict[str, Plugin] = {}
    for point in metadata.entry_points(group=group):
        package = "?" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        plugin = Plugin(point.value.replace(" ", ""), package)
        kept = found.setdefault(point.name, plugin)
        if kept != plugin:
            say(f"{point.name!r} is registered by {kept.package} and by {package}: the first is "
                f"used; the other is {plugin.word}")  # fmt: skip
    return found


def warn_of_clashes(group: str, known: Iterable[str]) -> None:
    """Say in a line which registered names are Sterling's own, which are used."""
    for name in sorted(set(registered(group)) & set(known)):
        plugin = registered(group)[name]
        say(f"{name!r} is Sterling's own; what {plugin.package} registers by that name is "
            f"{plugin.word}")  # fmt: skip
