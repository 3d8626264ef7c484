"""Worlds of text by name: tasks, tasks with feedback or tools, environments, games."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sterling.language import tasks
from sterling.language.scene import TextWorld
from sterling.language.task import Family
from sterling.language.worlds import reward_model_world, two_player_games
from sterling.language.worlds.gymnasium_text import TextGym, make_text_gym
from sterling.language.worlds.retry_with_feedback import TryAgain
from sterling.language.worlds.single_question import SingleTurn
from sterling.language.worlds.tool_use import ToolUse
from sterling.lookup import user_imports
from sterling.lookup.name_suggestions import did_you_mean, parse_literal
from sterling.system.mistake import Mistake

_FAMILY_WRAPPERS: dict[str, Callable[..., TextWorld]] = {"try-again:": TryAgain, "tools:": ToolUse}
_GYM, _GAME = "gym:", "game:"


def world_names() -> tuple[str, ...]:
    """Return the names of all text worlds that come with Sterling; ``gym:`` takes any small
    Gymnasium id."""
    families = tasks.family_names()
    around = [f"{prefix}{family}" for prefix in _FAMILY_WRAPPERS for family in families]
    toys = [f"{_GYM}{name}-v1" for name in ("FrozenLake", "CliffWalking", "Blackjack", "CartPole")]
    return (*families, *around, *toys, *two_player_games.game_names())


def find_world(name: str, **options: Any) -> TextWorld:
    """Return a text world by its name.

    - a task family's name (:func:`sterling.language.tasks.find_family`): one question, one answer;
    - ``try-again:FAMILY``: :class:`TryAgain`; ``tools:FAMILY``: :class:`ToolUse`, with the user's
      own tools if FAMILY is a file that has some (:func:`_tool_tasks`);
    - ``gym:ID``: :class:`TextGym` of a Gymnasium environment;
    - ``game:nim``, ``game:tic-tac-toe``: games of two seats;
    - ``scored:RUN:WORLD``: :class:`ScoredWorld` with a registered scorer;
    - ``FILE.py:make``, ``package.module:make``: what the user's ``make()`` returns.

    Options of these classes follow as arguments, or in the name: ``tools:arithmetic,limit=2``.
    Raises Mistake for what does not exist.
    """
    if name.startswith(reward_model_world.PREFIX):
        return reward_model_world.find_scored(name, lambda inner: find_world(inner, **options))
    name, *settings = user_imports.OPTION_START.split(name)
    pairs = (each.partition("=") for each in settings)
    options = {**{key: parse_literal(text) for key, _, text in pairs}, **options}
    if name.startswith(_GYM):
        return _with_options(make_text_gym, TextGym, name, name.removeprefix(_GYM), options)
    for prefix, make in _FAMILY_WRAPPERS.items():
        if name.startswith(prefix):
            tasks = name.removeprefix(prefix)
            if make is ToolUse:
                return _tool_world(name, tasks, options)
            return _with_options(make, make, name, _find_family(tasks), options)
    if options:
        raise Mistake(f"{name} has no options; leave out {', '.join(options)}")
    if name.startswith(_GAME):
        return two_player_games.find_game(name)
    return _user_world(name) or SingleTurn(_find_family(name))


def _user_world(name: str) -> TextWorld | None:
    """Return the user's own world, if ``name`` refers to something in a file or a module whose call
    gives a world; None if it is not a reference, or refers to tasks.

    What a file raises is left to the reader of its tasks, which imports it again and reports it.
    Nothing else reads a module: Mistake if it raises.
    """
    made = _user_object(name) if user_imports.split_reference(name)[1] else None
    return made if isinstance(made, TextWorld) else None


def _tool_world(name: str, tasks: str, options: dict[str, Any]) -> TextWorld:
    """Return the world ``tools:TASKS``; the user's own world if TASKS refers to one."""
    own = None if options else _user_world(tasks)
    if own is not None:
        return own
    return _with_options(ToolUse, ToolUse, name, *_tool_tasks(tasks, options))


def _tool_tasks(name: str, options: dict[str, Any]) -> tuple[Family, dict[str, Any]]:
    """Return the tasks of ``tools:NAME``, and the options with the user's own tools, if NAME refers
    to a file that has some: ``FILE.py:make`` returns tasks with ``tools``, or a list of tools for
    the tasks of the file itself; ``FILE.py`` has ``sample``, ``verify`` and ``tools``."""
    made = _user_object(name)
    if not isinstance(made, list | tuple):
        own = getattr(made, "tools", None)
        return _find_family(name), {**({"tools": own} if own else {}), **options}
    place, _ = user_imports.split_reference(name)
    if not hasattr(user_imports.load(place), "sample"):
        raise Mistake(
            f"{name} makes tools, and its file has no questions: add sample(seed, level) and "
            f"verify(task, response), or name questions, as tools:questions.jsonl,tools={name}"
        )
    return _find_family(place), {"tools": made, **options}


def _user_object(name: str) -> Any:
    """Return what a reference's call returns, or its module; None if the name is no reference, or
    importing it fails (see :func:`_user_world`)."""
    if not user_imports.is_reference(name):
        return None
    place, called = user_imports.split_reference(name)
    try:
        return user_imports.call_factory(name) if called else user_imports.load(name)
    except Exception as error:
        if place.endswith(user_imports.PYTHON_SUFFIX) or user_imports.source_file(name) is None:
            return None
        if isinstance(error, Mistake):
            raise
        raise Mistake(f"{name} raises {user_imports.describe_error(error)}") from error


def _with_options(
    make: Callable[..., TextWorld],
    described: Callable[..., TextWorld],
    name: str,
    first: Any,
    options: dict[str, Any],
) -> TextWorld:
    """Return the world of its first argument and options; Mistake for an option that it does not
    have."""
    _, *known = inspect.signature(described).parameters.values()
    names = [each.name for each in known]
    for option, value in options.items():
        if option not in names and all(each.kind is not each.VAR_KEYWORD for each in known):
            near = did_you_mean(option, names, f"it has {', '.join(names)}")
            raise Mistake(f"{name} has no option {option!r}{near}")
        kind = next((each.annotation for each in known if each.name == option), "")
        options[option] = _check_option(value, str(kind), f"{option} of {name}")
    return make(first, **options)


def _check_option(value: Any, kind: str, what: str) -> Any:
    """Return an option's value; Mistake if its type is not the plain one that is annotated."""
    if kind == "float" and type(value) is int:
        return float(value)
    if kind in ("int", "float", "bool") and type(value).__name__ != kind:
        raise Mistake(f"{what} must be of type {kind}; got {value!r}")
    return value


def _find_family(name: str) -> Family:
    """Return a task family; if the name looks like a world's, the hint suggests names of worlds."""
    try:
        return tasks.find_family(name)
    except Mistake as error:
        kind, colon, _ = name.partition(":")
        near = (
            did_you_mean(kind, (each.rstrip(":") for each in (*_FAMILY_WRAPPERS, _GYM, _GAME)))
            if colon
            else ""
        )
        if not near:
            raise
        raise Mistake(
            f"no text world is called {name!r}{did_you_mean(name, world_names(), near[2:])}"
        ) from error
