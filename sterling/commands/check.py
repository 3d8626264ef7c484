"""``sterling check my_algorithm.py | my_world.py:make``: review what a user has written."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from sterling import importing
from sterling.algorithms import reference_of
from sterling.commands import fields, readers

EXPLAINED = """\
An algorithm (a name, FILE.py, package.module) is checked for its form, for one update, and in
short runs on probe worlds whose answers are known; its fields are options. An environment (a name,
FILE.py:factory, package.module:factory) is played by chance and held against the rules that every
world keeps to. Exit code 0 if everything holds, 1 if something does not, 2 for wrong use."""
MARKS = {"holds": "ok", "fails": "WRONG", "not checked": "-"}


def options_for(parser: Any, words: Sequence[str]) -> None:
    """What can be asked for, with the settings of the algorithm among ``words``."""
    parser.usage = "sterling check ALGORITHM|ENVIRONMENT [options]"
    parser.epilog = EXPLAINED
    add = parser.add_argument
    add("what", metavar="ALGORITHM|ENVIRONMENT", help="as: my_algorithm.py, my_world.py:make")
    add("--quick", action="store_true", help="fewer steps and probe worlds")
    example = "an option of the environment, as max_episode_steps=500; may be repeated"
    add("--env", type=readers.pair, action="append", default=[], metavar="KEY=VALUE", help=example)
    algorithm = next((word for word in words if _is_algorithm(word)), None)
    if algorithm is not None:
        about, own = fields.config(algorithm)
        group = parser.add_argument_group(f"settings of {importing.short(algorithm)}", about)
        for field in own:
            field.add_to(group)


def carry_out(chosen: argparse.Namespace) -> int:
    """Print a line for each finding as it is made, and how many hold."""
    from sterling.checking import check_algorithm, check_environment

    if _is_algorithm(chosen.what):
        names = [field.name for field in fields.config(chosen.what)[1]]
        own = {name: getattr(chosen, name) for name in names if hasattr(chosen, name)}
        found = check_algorithm(chosen.what, own, quick=chosen.quick)
    else:
        found = check_environment(chosen.what, dict(chosen.env), quick=chosen.quick)
    counts = dict.fromkeys(MARKS, 0)
    for finding in found:
        counts[finding.verdict] += 1
        print(_line(finding), flush=True)
    wrong = counts["fails"]
    print(f"\n{importing.short(chosen.what)}: {counts['holds']} hold, {wrong} to mend, "
          f"{counts['not checked']} not checked")  # fmt: skip
    return int(wrong > 0)


def _line(finding: Any) -> str:
    """A finding, and below it what is wrong, where, and what to do."""
    head = f"{MARKS[finding.verdict]:<6} {finding.what}"
    if not finding.failed:
        return f"{head}: {finding.said}" if finding.said else head
    where = f"{finding.where}: " if finding.where else ""
    lines = [head, f"       {where}{finding.said}"]
    return "\n".join([*lines, f"       -> {finding.remedy}"] if finding.remedy else lines)


def _is_algorithm(word: str) -> bool:
    """Whether a word names an algorithm: a name, a file or module that is there, or an object in it
    whose source has a Config."""
    reference = reference_of(word)
    if reference is None or word.startswith("-"):
        return False
    path, name = importing.file_of(reference), importing.split(reference)[1]
    return path is not None and (not name or fields.find_class(path, f"{name}.Config") is not None)
