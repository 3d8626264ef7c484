"""``sterling list algorithms | environments | sources``."""

from __future__ import annotations

import argparse

from sterling import plugins
from sterling.algorithms import ALGORITHMS
from sterling.commands.fields import first_line


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    kinds.add_parser("algorithms", help="and what each is")
    kinds.add_parser("sources", help="that --sources puts around a run's rollouts")
    environments = kinds.add_parser("environments", help="all, or those that hold a pattern")
    environments.add_argument("pattern", nargs="?", default="", metavar="PATTERN")


def carry_out(chosen: argparse.Namespace) -> int:
    """Print one name a line."""
    if chosen.kind == "algorithms":
        return _algorithms()
    if chosen.kind == "sources":
        return _sources()
    from sterling import envs
    from sterling.envs import envpool
    from sterling.language import worlds
    from sterling.types import Mistake

    pattern = chosen.pattern.lower()
    found = {backend: names for backend, names in envs.names(chosen.pattern).items() if names}
    told = [name for name in worlds.names() if pattern in f"text {name}".lower()]
    found |= {"text": told} if told else {}
    plugged = [(f"{group.removeprefix('sterling.').removesuffix('s')}", name, plugin)
               for group in (plugins.WORLDS, plugins.TASKS)
               for name, plugin in plugins.registered(group).items()
               if pattern in name.lower()]  # fmt: skip
    if not found and not plugged:
        raise Mistake(f"no environment's name holds {chosen.pattern!r}")
    for backend, names in found.items():
        for name in names:
            reason = envpool.unusable(name) if backend == "envpool" else None
            print(f"{backend:<11}{name}{f'  (does not run here: {reason})' if reason else ''}")
    for kind, name, plugin in plugged:
        print(f"{kind:<11}{name}  (of {plugin.package}: {plugin.word})")
    plugins.warn_of_clashes(plugins.WORLDS, {name for names in found.values() for name in names})
    plugins.warn_of_clashes(plugins.TASKS, told)
    return 0


def _algorithms() -> int:
    others = plugins.registered(plugins.ALGORITHMS)
    plugged = {name: plugin for name, plugin in others.items() if name not in ALGORITHMS}
    width = 2 + max(map(len, [*ALGORITHMS, *plugged]))
    for name in ALGORITHMS:
        print(f"{name:<{width}}{first_line(name)}")
    for name, plugin in plugged.items():
        print(f"{name:<{width}}{first_line(name)}  (of {plugin.package}: {plugin.word})")
    plugins.warn_of_clashes(plugins.ALGORITHMS, ALGORITHMS)
    return 0


def _sources() -> int:
    from sterling.training.sources import LAYERS, named

    others = plugins.registered(plugins.SOURCES)
    plugged = {name: plugin for name, plugin in others.items() if name not in LAYERS}
    width = 2 + max(map(len, [*LAYERS, *plugged]))
    for name in [*LAYERS, *plugged]:
        layer = named(name)
        example = f" ({layer.example})" if layer.example else ""
        of = f"  (of {plugged[name].package}: {plugged[name].word})" if name in plugged else ""
        print(f"{name:<{width}}{layer.help}{example}{of}")
    plugins.warn_of_clashes(plugins.SOURCES, LAYERS)
    return 0
