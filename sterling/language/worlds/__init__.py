"""Worlds of text by name: tasks, tasks with feedback or tools, environments, games."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from sterling import importing
from sterling.language import tasks
from sterling.language.scene import TextWorld
from sterling.language.task import Family
from sterling.language.worlds import games, scored
from sterling.language.worlds.gymnasium_text import TextGym, text_gym
from sterling.language.worlds.single import Single
from sterling.language.worlds.tool_use import ToolUse
from sterling.language.worlds.try_again import TryAgain
from sterling.naming import hint, literal
from sterling.types import Mistake

_AROUND: dict[str, Callable[..., TextWorld]] = {"try-again:": TryAgain, "tools:": ToolUse}
_GYM, _GAME = "gym:", "game:"
_OPTIONS = re.compile(r",(?=[a-z_]+=)")


def names() -> tuple[str, ...]:
    """Every text world that comes with Sterling; ``gym:`` takes any small Gymnasium id."""
    families = tasks.names()
    around = [f"{prefix}{family}" for prefix in _AROUND for family in families]
    toys = [f"{_GYM}{name}-v1" for name in ("FrozenLake", "CliffWalking", "Blackjack", "CartPole")]
    return (*families, *around, *toys, *games.names())


def find(name: str, **options: Any) -> TextWorld:
    """A text world by its name.

    - a task family's name (:func:`sterling.language.tasks.find`): one question, one answer;
    - ``try-again:FAMILY``: :class:`TryAgain`; ``tools:FAMILY``: :class:`ToolUse`;
    - ``gym:ID``: :class:`TextGym` of a Gymnasium environment;
    - ``game:nim``, ``game:tic-tac-toe``: games of two seats;
    - ``scored:RUN:WORLD``: :class:`Scored` by a registered judge;
    - ``FILE.py:make``, ``package.module:make``: what the user's ``make()`` returns.

    Options of these classes follow as arguments, or in the name: ``tools:arithmetic,limit=2``.
    Raises Mistake for what does not exist.
    """
    if name.startswith(scored.PREFIX):
        return scored.named(name, lambda inner: find(inner, **options))
    name, *said = _OPTIONS.split(name)
    pairs = (each.partition("=") for each in said)
    options = {**{key: literal(text) for key, _, text in pairs}, **options}
    if name.startswith(_GYM):
        return _with(text_gym, TextGym, name, name.removeprefix(_GYM), options)
    for prefix, make in _AROUND.items():
        if name.startswith(prefix):
            return _with(make, make, name, _family(name.removeprefix(prefix)), options)
    if options:
        raise Mistake(f"{name} has no options ({', '.join(options)}); leave them out")
    if name.startswith(_GAME):
        return games.find(name)
    return _own(name) or Single(_family(name))


def _own(name: str) -> TextWorld | None:
    """The user's own world, where ``name`` refers to something in a file or a module whose call
    gives one; None where it is no reference, or to tasks.

    What a file raises is left to the reader of its tasks, which imports it again and says it. A
    module is read by nobody else: Mistake where it raises.
    """
    place, called = importing.split(name)
    if not called or not importing.is_reference(name):
        return None
    try:
        made = importing.build(name)
    except Exception as error:
        if place.endswith(importing.SUFFIX) or importing.file_of(name) is None:
            return None
        if isinstance(error, Mistake):
            raise
        raise Mistake(f"{name} raises {importing.explain(error)}") from error
    return made if isinstance(made, TextWorld) else None


def _with(
    make: Callable[..., TextWorld],
    described: Callable[..., TextWorld],
    name: str,
    first: Any,
    options: dict[str, Any],
) -> TextWorld:
    """The world of its first argument and options; Mistake for an option it does not have."""
    _, *known = inspect.signature(described).parameters.values()
    names = [each.name for each in known]
    for option, value in options.items():
        if option not in names and all(each.kind is not each.VAR_KEYWORD for each in known):
            near = hint(option, names, f"it has {', '.join(names)}")
            raise Mistake(f"{name} has no option {option!r}{near}")
        kind = next((each.annotation for each in known if each.name == option), "")
        options[option] = _typed(value, str(kind), f"{option} of {name}")
    return make(first, **options)


def _typed(value: Any, kind: str, what: str) -> Any:
    """An option's value; Mistake where it is no plain value of the kind that is written there."""
    if kind == "float" and type(value) is int:
        return float(value)
    if kind in ("int", "float", "bool") and type(value).__name__ != kind:
        raise Mistake(f"{value!r} is no {kind}; correct {what}")
    return value


def _family(name: str) -> Family:
    """A task family; where the name looks like that of a world, the hint is a world's name."""
    try:
        return tasks.find(name)
    except Mistake as error:
        kind, colon, _ = name.partition(":")
        near = hint(kind, (each.rstrip(":") for each in (*_AROUND, _GYM, _GAME))) if colon else ""
        if not near:
            raise
        raise Mistake(f"no text world is called {name!r}{hint(name, names(), near[2:])}") from error
