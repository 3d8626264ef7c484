"""``sterling list algorithms | environments | sources | names``: list what has a name."""

from __future__ import annotations

import argparse

from sterling.algorithms import ALGORITHMS, GROUPS, group_of
from sterling.commands.options.algorithm_options import algorithm_summary
from sterling.lookup import entry_points
from sterling.lookup.peer_names import (
    KINDS,
    peer_table,
    unknown_algorithm,
    unknown_environment,
)

NAME_PART = "a part of the names to list"
PEER_PART = "a part of a name or of a library's name, such as learning_rate or trl"
ABOUT = {
    "algorithms": "list all algorithms, or those whose names contain PATTERN, with a description",
    "environments": "list all environments, or those whose names contain PATTERN",
    "sources": "list the wrappers of rollouts for the option --sources",
    "names": "list names of other libraries, and what they are called here",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``sterling list``."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=False)
    parts = {"algorithms": NAME_PART, "environments": NAME_PART, "names": PEER_PART}
    for kind, about in ABOUT.items():
        own = kinds.add_parser(kind, help=about)
        if kind in parts:
            own.add_argument("pattern", nargs="?", default="", metavar="PATTERN", help=parts[kind])


def carry_out(chosen: argparse.Namespace) -> int:
    """Print one name per line, algorithms in groups; without a kind, what can be listed."""
    if chosen.kind is None:
        print("\n".join(f"sterling list {kind:<14}{about}" for kind, about in ABOUT.items()))
        return 0
    if chosen.kind == "algorithms":
        return _list_algorithms(chosen.pattern)
    if chosen.kind == "sources":
        return _list_sources()
    if chosen.kind == "names":
        return _list_peer_names(chosen.pattern.lower())
    return _list_environments(chosen.pattern)


def _list_environments(asked: str) -> int:
    """Print the environments and text tasks whose names contain ``asked``."""
    from sterling import envs
    from sterling.envs.compiled import envpool_env
    from sterling.language import worlds
    from sterling.types import Mistake

    pattern = asked.lower()
    found = {backend: names for backend, names in envs.names(asked).items() if names}
    text_names = [name for name in worlds.world_names() if pattern in f"text {name}".lower()]
    found |= {"text": text_names} if text_names else {}
    plugged = [(f"{group.removeprefix('sterling.').removesuffix('s')}", name, plugin)
               for group in (entry_points.WORLDS, entry_points.TASKS)
               for name, plugin in entry_points.find_plugins(group).items()
               if pattern in name.lower()]  # fmt: skip
    if not found and not plugged:
        every = [name for each in envs.names().values() for name in each]
        raise Mistake(
            f"No environment's name contains {asked!r}"
            + (unknown_environment(asked, every)
               or ". See all with: sterling list environments")
        )  # fmt: skip
    for backend, names in found.items():
        for name in names:
            reason = envpool_env.unusable_reason(name) if backend == "envpool" else None
            print(f"{backend:<11}{name}{f'  (does not run here: {reason})' if reason else ''}")
    for kind, name, plugin in plugged:
        print(f"{kind:<11}{name}  (of {plugin.package}: {plugin.word})")
    entry_points.warn_of_clashes(
        entry_points.WORLDS, {name for names in found.values() for name in names}
    )
    entry_points.warn_of_clashes(entry_points.TASKS, text_names)
    return 0


def _list_peer_names(pattern: str) -> int:
    """Print one line for each name of another library: library, name, name here, remark."""
    from sterling.types import Mistake

    rows = [row for kind in KINDS for row in peer_table(kind)
            if any(pattern in text.lower() for text in (row.peer, row.word, row.here))]  # fmt: skip
    if not rows:
        raise Mistake(f"No library's name contains {pattern!r}. See all with: sterling list names")
    widths = [max(len(row[at]) for row in rows) for at in (0, 2, 3)]
    for row in rows:
        parts = (row.peer, row.word, row.here or "-")
        text = "  ".join(f"{part:<{width}}" for part, width in zip(parts, widths, strict=True))
        print(f"{text}  {row.remark}".rstrip())
    return 0


def _list_algorithms(pattern: str) -> int:
    from sterling.system.mistake import Mistake

    others = entry_points.find_plugins(entry_points.ALGORITHMS)
    plugged = {name: plugin for name, plugin in others.items()
               if name not in ALGORITHMS and pattern.lower() in name.lower()}  # fmt: skip
    own = [name for name in ALGORITHMS if pattern.lower() in name]
    if not own and not plugged:
        near = unknown_algorithm(pattern) or ". See all with: sterling list algorithms"
        raise Mistake(f"No algorithm's name contains {pattern!r}{near}")
    groups: dict[str, dict[str, str]] = {label: {} for label in GROUPS.values()}
    for name in own:
        groups[group_of(name)][name] = algorithm_summary(name)
    groups["of installed packages"] = {
        name: f"{algorithm_summary(name)}  (of {plugin.package}: {plugin.word})"
        for name, plugin in plugged.items()
    }
    width = 2 + max(map(len, [*own, *plugged]))
    blocks = [
        "\n".join([f"{label}:", *(f"  {name:<{width}}{about}" for name, about in found.items())])
        for label, found in groups.items()
        if found
    ]
    print("\n\n".join(blocks))
    entry_points.warn_of_clashes(entry_points.ALGORITHMS, ALGORITHMS)
    return 0


def _list_sources() -> int:
    from sterling.training.assembly.build_sources import LAYERS, find_layer

    others = entry_points.find_plugins(entry_points.SOURCES)
    plugged = {name: plugin for name, plugin in others.items() if name not in LAYERS}
    width = 2 + max(map(len, [*LAYERS, *plugged]))
    for name in [*LAYERS, *plugged]:
        layer = find_layer(name)
        example = f" ({layer.example})" if layer.example else ""
        of = f"  (of {plugged[name].package}: {plugged[name].word})" if name in plugged else ""
        print(f"{name:<{width}}{layer.help}{example}{of}")
    entry_points.warn_of_clashes(entry_points.SOURCES, LAYERS)
    return 0
