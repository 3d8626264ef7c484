"""Find verifiable tasks by name: families, files, packages, mixtures.

Each family's docstring states its prompt and answer form, what its levels mean, and the lengths of
prompts and demonstrated answers at each level, as measured over 4,000 seeds.
"""

from __future__ import annotations

from pathlib import Path

from sterling.language.adapters.jsonl_tasks import JsonlTasks
from sterling.language.adapters.reasoning_gym_tasks import ReasoningGym
from sterling.language.adapters.user_tasks import UserTasks
from sterling.language.task import Family
from sterling.language.tasks import (
    countdown,
    graph_tasks,
    list_tasks,
    logic_tasks,
    number_tasks,
    program_tasks,
    sql_tasks,
    text_formats,
    word_tasks,
)
from sterling.language.tasks.task_mixture import Mixture
from sterling.lookup import entry_points, user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake

_FAMILIES: dict[str, type[Family]] = {
    family.name: family
    for family in (
        word_tasks.ReverseText,
        word_tasks.SortLetters,
        word_tasks.CopyText,
        number_tasks.Arithmetic,
        number_tasks.Chain,
        number_tasks.ModularAddition,
        countdown.Countdown,
        countdown.CountdownMini,
        list_tasks.ListOperations,
        logic_tasks.KnightsAndKnaves,
        logic_tasks.BooleanCircuit,
        graph_tasks.GraphPath,
        sql_tasks.Sql,
        program_tasks.Program,
        text_formats.Instructions,
        text_formats.JsonFormat,
    )
}
_REASONING_GYM = "reasoning-gym:"
_NAME_FORMS = "a family, reasoning-gym:NAME, FILE.jsonl, FILE.jsonl:math, FILE.py:make, or A+B"


def family_names() -> tuple[str, ...]:
    """Return the names of the families that come with Sterling."""
    return tuple(_FAMILIES)


def find_family(name: str) -> Family:
    """Return a task family by its name.

    - a name of :func:`names`;
    - ``reasoning-gym:NAME``: a data set of the ``reasoning_gym`` package;
    - ``FILE.jsonl``: prompts with answers, compared as text; ``FILE.jsonl:math``: as mathematics,
      ``FILE.jsonl:algebra``: with letters as variables;
    - ``FILE.py:make``: what the user's ``make()`` returns; ``FILE.py``: its ``sample``, ``verify``;
    - a name that an installed package registers for its ``make`` (entry points ``sterling.tasks``);
    - ``A+B``, ``A*3+B``: several of these in equal or given shares.

    Raises Mistake for a name, file or package that does not exist.
    """
    if "+" in name and not Path(name).exists():
        return _parse_mixture(name)
    file, _, part = name.rpartition(":") if not name.endswith((".py", ".jsonl")) else (name, "", "")
    if name.startswith(_REASONING_GYM):
        return ReasoningGym(name.removeprefix(_REASONING_GYM))
    if file.endswith(".py"):
        return UserTasks(Path(file), part)
    if file.endswith(".jsonl"):
        return JsonlTasks(Path(file), part)
    if name not in _FAMILIES:
        plugin = entry_points.find_plugins(entry_points.TASKS).get(name)
        if plugin is not None:
            return _plugin_family(name, plugin)
        raise Mistake(
            f"no task is called {name!r}{did_you_mean(name, _FAMILIES, f'give {_NAME_FORMS}')}"
        )
    return _FAMILIES[name]()


def _plugin_family(name: str, plugin: entry_points.Plugin) -> Family:
    """Return a package's tasks, whose verifier runs in a process of its own, like that of a user's
    file."""
    path = user_imports.source_file(plugin.word)
    if path is None:
        raise Mistake(
            f"{plugin.package} registers {name!r} as {plugin.word}, which has no source file"
        )
    return UserTasks(path, user_imports.split_reference(plugin.word)[1])


def _parse_mixture(name: str) -> Mixture:
    members, weights = [], []
    for part in name.split("+"):
        family, star, weight = part.strip().rpartition("*")
        members.append(find_family(family if star else part.strip()))
        weights.append(_parse_weight(weight, name) if star else 1.0)
    return Mixture(name, members, weights)


def _parse_weight(text: str, name: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0.0 < weight < float("inf"):
        raise Mistake(f"{text!r} in {name!r} is not a weight; write a positive number, as in A*3+B")
    return weight
