"""The registry of verifiable tasks: families by name, files, packages, mixtures.

Each family's description states its prompt and answer form, what its levels mean, and the lengths
of prompts and demonstrated answers at each level, as found over 4,000 seeds.
"""

from __future__ import annotations

from pathlib import Path

from sterling import importing, plugins
from sterling.language.adapters.jsonl import JsonlTasks
from sterling.language.adapters.reasoning_gym import ReasoningGym
from sterling.language.adapters.user import UserTasks
from sterling.language.task import Family
from sterling.language.tasks import (
    countdown,
    formats,
    graphs,
    lists,
    logic,
    numbers,
    program,
    sql,
    text,
)
from sterling.language.tasks.mixture import Mixture
from sterling.naming import hint
from sterling.types import Mistake

_FAMILIES: dict[str, type[Family]] = {
    family.name: family
    for family in (
        text.ReverseText,
        text.SortLetters,
        text.CopyText,
        numbers.Arithmetic,
        numbers.Chain,
        numbers.ModularAddition,
        countdown.Countdown,
        countdown.CountdownMini,
        lists.ListOperations,
        logic.KnightsAndKnaves,
        logic.BooleanCircuit,
        graphs.GraphPath,
        sql.Sql,
        program.Program,
        formats.Instructions,
        formats.JsonFormat,
    )
}
_GYM = "reasoning-gym:"
_FORMS = "a family, reasoning-gym:NAME, FILE.jsonl, FILE.jsonl:math, FILE.py:make, or A+B"


def names() -> tuple[str, ...]:
    """The families that come with Sterling."""
    return tuple(_FAMILIES)


def find(name: str) -> Family:
    """A task family by its name.

    - a name of :func:`names`;
    - ``reasoning-gym:NAME``: a data set of the ``reasoning_gym`` package;
    - ``FILE.jsonl``: prompts with answers, compared as text; ``FILE.jsonl:math``: as mathematics;
    - ``FILE.py:make``: what the user's ``make()`` returns; ``FILE.py``: its ``sample``, ``verify``;
    - a name that an installed package registers for its ``make`` (entry points ``sterling.tasks``);
    - ``A+B``, ``A*3+B``: several of these in equal or given shares.

    Raises Mistake for a name, file or package that is not there.
    """
    if "+" in name and not Path(name).exists():
        return _mixture(name)
    file, _, part = name.rpartition(":") if not name.endswith((".py", ".jsonl")) else (name, "", "")
    if name.startswith(_GYM):
        return ReasoningGym(name.removeprefix(_GYM))
    if file.endswith(".py"):
        return UserTasks(Path(file), part)
    if file.endswith(".jsonl"):
        return JsonlTasks(Path(file), part)
    if name not in _FAMILIES:
        plugin = plugins.registered(plugins.TASKS).get(name)
        if plugin is not None:
            return _of_plugin(name, plugin)
        raise Mistake(f"no task is called {name!r}{hint(name, _FAMILIES, f'it may be {_FORMS}')}")
    return _FAMILIES[name]()


def _of_plugin(name: str, plugin: plugins.Plugin) -> Family:
    """A package's tasks, whose verifier runs in a process of its own, as a user's file's does."""
    path = importing.file_of(plugin.word)
    if path is None:
        raise Mistake(f"{plugin.package} registers {name!r} as {plugin.word}, which has no source")
    return UserTasks(path, importing.split(plugin.word)[1])


def _mixture(name: str) -> Mixture:
    members, weights = [], []
    for part in name.split("+"):
        family, star, weight = part.strip().rpartition("*")
        members.append(find(family if star else part.strip()))
        weights.append(_weight(weight, name) if star else 1.0)
    return Mixture(name, members, weights)


def _weight(text: str, name: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0.0 < weight < float("inf"):
        raise Mistake(f"{text!r} in {name!r} is no weight; write a positive number, as in A*3+B")
    return weight
