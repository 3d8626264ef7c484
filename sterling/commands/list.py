"""``sterling list algorithms | environments``."""

from __future__ import annotations

import argparse

from sterling.algorithms import ALGORITHMS
from sterling.commands.fields import first_line


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    kinds.add_parser("algorithms", help="and what each is")
    environments = kinds.add_parser("environments", help="all, or those that hold a pattern")
    environments.add_argument("pattern", nargs="?", default="", metavar="PATTERN")


def carry_out(chosen: argparse.Namespace) -> int:
    """Print one name a line."""
    if chosen.kind == "algorithms":
        width = 2 + max(map(len, ALGORITHMS))
        for name in ALGORITHMS:
            print(f"{name:<{width}}{first_line(name)}")
        return 0
    from sterling import envs
    from sterling.envs import envpool
    from sterling.language import worlds
    from sterling.types import Mistake

    pattern = chosen.pattern.lower()
    found = {backend: names for backend, names in envs.names(chosen.pattern).items() if names}
    told = [name for name in worlds.names() if pattern in f"text {name}".lower()]
    found |= {"text": told} if told else {}
    if not found:
        raise Mistake(f"no environment's name holds {chosen.pattern!r}")
    for backend, names in found.items():
        for name in names:
            reason = envpool.unusable(name) if backend == "envpool" else None
            print(f"{backend:<11}{name}{f'  (does not run here: {reason})' if reason else ''}")
    return 0
