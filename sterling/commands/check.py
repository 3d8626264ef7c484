"""``sterling check my_algorithm.py | my_env.py:make | tasks.jsonl``: review what a user made."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.algorithms import ALGORITHMS, import_path
from sterling.commands import train
from sterling.commands.options import algorithm_options, option_values
from sterling.lookup import user_imports
from sterling.system import interrupts
from sterling.system.mistake import Mistake

if TYPE_CHECKING:
    from sterling.checking import Finding

EXPLAINED = """\
An algorithm (a name, FILE.py or package.module) is checked in three steps: its form, one update,
and short runs on probe environments with known answers; the fields of its Config are options. With
an ENVIRONMENT or a dataset, named as in `sterling train`, its updates and runs are checked there.
An environment (a name, FILE.py:factory or package.module:factory) is played with random actions and
checked against the rules that every environment must follow. Language tasks (a name, FILE.jsonl,
FILE.jsonl:math, FILE.py or FILE.py:make) are made and judged: right, wrong and odd answers. A check
that crashes is a finding, and the others go on. Exit code 0 if no check fails, 1 if one does, 2 for
wrong use."""
VERDICT_MARKS = {"holds": "ok", "fails": "WRONG", "not checked": "-", "left out by --quick": "-"}


def add_options_for(parser: Any, words: Sequence[str]) -> None:
    """Add the options of ``sterling check``, and the settings of the algorithm among ``words``."""
    parser.usage = (
        "sterling check ALGORITHM [ENVIRONMENT|FILE] [options]\n"
        "       sterling check ENVIRONMENT|TASKS [options]"
    )
    parser.epilog = EXPLAINED
    add = parser.add_argument
    named = "what to check, for example my_algorithm.py, my_env.py:make or tasks.jsonl:math"
    add("what", metavar="ALGORITHM|ENVIRONMENT|TASKS", help=named)
    where = "of an algorithm: the environment or dataset to check it on (its file's checked_in, or "
    add("world", nargs="?", metavar="ENVIRONMENT", help=where + "probes)")
    add("--data", type=Path, metavar="FILE", help="the dataset, if ENVIRONMENT is not a file")
    judged = "environment of the dataset's agents (the one that FILE names)"
    add("--environment", metavar="ENV", help=judged)
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
    parser.set_defaults(algorithm_of_fields=algorithm)
    if algorithm is not None:
        about, own = algorithm_options.config_fields(algorithm)
        group = parser.add_argument_group(
            f"settings of {user_imports.short_name(algorithm)}", about
        )
        for field in own:
            field.add_to(group)


def carry_out(chosen: argparse.Namespace) -> int:
    """Print each finding as soon as it is made, and at the end, also of a check that is stopped,
    how many checks hold."""
    found = iter(_findings(chosen))
    whats: dict[str, list[str]] = {verdict: [] for verdict in VERDICT_MARKS}
    name = user_imports.short_name(chosen.what)
    while True:
        stopped = f"{name}: stopped; so far {_counts(whats)}"
        with interrupts.interrupt_message(stopped):
            try:
                finding = next(found, None)
            except SystemExit as error:  # a training run that a signal stopped
                if error.code == interrupts.EXIT_RESUMABLE:
                    print(f"\n{stopped}", flush=True)
                raise
        if finding is None:
            break
        whats[finding.verdict].append(finding.what)
        print(_finding_text(finding), flush=True)
    print(f"\n{name}: {_counts(whats)}")
    if left := whats["not checked"]:
        print(f"not checked: {'; '.join(left)}")
    return int(bool(whats["fails"]))


def _counts(whats: dict[str, list[str]]) -> str:
    """Return how many checks have each verdict, in words."""
    hold, fail, left, quick = map(len, whats.values())
    words = f"{hold} hold, {fail} fail, {left} not checked"
    return f"{words}, {quick} left out by --quick" if quick else words


def _findings(chosen: argparse.Namespace) -> Iterator[Finding]:
    """Return the findings about an algorithm, an environment or tasks."""
    from sterling.checking import check_algorithm, check_environment, check_tasks

    if _names_algorithm(chosen.what) and not _names_tasks(chosen.what):
        own = train.config_values(chosen)
        words = argparse.Namespace(**vars(chosen) | {"algorithm": chosen.what})
        world, data = train.environment_and_log(words)
        options = {"env_options": dict(chosen.env)} if chosen.env else {}
        where = {"environment": world, "data": data}
        return check_algorithm(chosen.what, own, quick=chosen.quick, **where, **options)
    extra = [word for word in (chosen.world, chosen.data, chosen.environment) if word is not None]
    if extra:
        raise Mistake(
            f"{chosen.what} is no algorithm, so it is checked alone. Leave out {extra[0]}, or give "
            "the algorithm first: sterling check ALGORITHM ENVIRONMENT."
        )
    if _names_tasks(chosen.what):
        return check_tasks(chosen.what, quick=chosen.quick)
    return check_environment(chosen.what, dict(chosen.env), quick=chosen.quick)


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
