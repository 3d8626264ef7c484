"""``sterling check my_algorithm.py | my_env.py:make | tasks.jsonl``: review what a user made."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.algorithms import ALGORITHMS, import_path
from sterling.commands.options import algorithm_options, option_values
from sterling.lookup import user_imports

EXPLAINED = """\
An algorithm (a name, FILE.py or package.module) is checked in three steps: its form, one update,
and short runs on probe environments with known answers; the fields of its Config are options. An
environment (a name, FILE.py:factory or package.module:factory) is played with random actions and
checked against the rules that every environment must follow. Language tasks (a name, FILE.jsonl,
FILE.jsonl:math, FILE.py or FILE.py:make) are made and judged: right, wrong and odd answers. A check
that crashes is a finding, and the others go on. Exit code 0 if no check fails, 1 if one does, 2 for
wrong use."""
VERDICT_MARKS = {"holds": "ok", "fails": "WRONG", "not checked": "-"}


def add_options_for(parser: Any, words: Sequence[str]) -> None:
    """Add the options of ``sterling check``, and the settings of the algorithm among ``words``."""
    parser.usage = "sterling check ALGORITHM|ENVIRONMENT|TASKS [options]"
    parser.epilog = EXPLAINED
    add = parser.add_argument
    named = "what to check, for example my_algorithm.py, my_env.py:make or tasks.jsonl:math"
    add("what", metavar="ALGORITHM|ENVIRONMENT|TASKS", help=named)
    add("--quick", action="store_true", help="use fewer steps, probe environments and tasks")
    example = "an option of the environment, such as max_episode_steps=500; may be repeated"
    add(
        "--env",
        type=option_values.key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=example,
    )
    algorithm = next((word for word in words if _names_algorithm(word)), None)
    if algorithm is not None:
        about, own = algorithm_options.config_fields(algorithm)
        group = parser.add_argument_group(
            f"settings of {user_imports.short_name(algorithm)}", about
        )
        for field in own:
            field.add_to(group)


def carry_out(chosen: argparse.Namespace) -> int:
    """Print each finding as soon as it is made, and at the end how many checks hold."""
    from sterling.checking import check_algorithm, check_environment, check_tasks

    if _names_tasks(chosen.what):
        found = check_tasks(chosen.what, quick=chosen.quick)
    elif _names_algorithm(chosen.what):
        names = [field.name for field in algorithm_options.config_fields(chosen.what)[1]]
        own = {name: getattr(chosen, name) for name in names if hasattr(chosen, name)}
        found = check_algorithm(chosen.what, own, quick=chosen.quick)
    else:
        found = check_environment(chosen.what, dict(chosen.env), quick=chosen.quick)
    whats: dict[str, list[str]] = {verdict: [] for verdict in VERDICT_MARKS}
    for finding in found:
        whats[finding.verdict].append(finding.what)
        print(_finding_text(finding), flush=True)
    hold, fail, left = whats.values()
    counts = f"{len(hold)} hold, {len(fail)} fail, {len(left)} not checked"
    print(f"\n{user_imports.short_name(chosen.what)}: {counts}")
    if left:
        print(f"not checked: {'; '.join(left)}")
    return int(bool(fail))


def _finding_text(finding: Any) -> str:
    """Return the text of a finding; if it fails, also what is wrong, where, and what to do."""
    head = f"{VERDICT_MARKS[finding.verdict]:<6} {finding.what}"
    if not finding.failed:
        return f"{head}: {finding.said}" if finding.said else head
    where = f"{finding.where}: " if finding.where else ""
    lines = [head, f"       {where}{finding.said}"]
    return "\n".join([*lines, f"       -> {finding.remedy}"] if finding.remedy else lines)


def _names_algorithm(word: str) -> bool:
    """Whether a word names an algorithm: a known name, an existing file or module, or an object in
    one whose source has a Config."""
    reference = import_path(word)
    if reference is None or word.startswith("-"):
        return False
    path, name = user_imports.source_file(reference), user_imports.split_reference(reference)[1]
    if path is None or name:
        return path is not None and _has_config(path, f"{name}.Config")
    return word in ALGORITHMS or _has_config(path, "Config") or not _names_tasks(word)


def _has_config(path: Path, name: str) -> bool:
    return algorithm_options.find_class(path, name) is not None


def _names_tasks(word: str) -> bool:
    from sterling.language.task_names import names_tasks

    return names_tasks(word)
