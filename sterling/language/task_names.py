"""Tell language tasks from environments and algorithms by their name."""

from __future__ import annotations

import re
from typing import Any

from sterling.language.tasks import family_names
from sterling.lookup import entry_points, user_imports
from sterling.system.mistake import Mistake

FILE_OR_PACKAGE = re.compile(r"reasoning-gym:.+|.+\.jsonl(:\w*)?")
WORLD_OF_TASKS = re.compile(r"(try-again|tools):(.+)")
SHARE = re.compile(r"\*[\d.]+$")


def names_tasks(word: str) -> bool:
    """Whether ``word`` names language tasks: a family, a file of questions, a mixture, or a
    reference to functions ``sample`` and ``verify`` (or ``verify_batch``), which is imported.
    Raises Mistake for a text world, which is played in turns."""
    if world := WORLD_OF_TASKS.fullmatch(word):
        raise Mistake(
            f"Only tasks are checked, not worlds of several turns: sterling check {world[2]}"
        )
    parts = [SHARE.sub("", part.strip()) for part in word.split("+")]
    if len(parts) > 1:
        return all(map(names_tasks, parts))
    plugins = entry_points.find_plugins(entry_points.TASKS)
    if word in family_names() or word in plugins or FILE_OR_PACKAGE.fullmatch(word):
        return True
    return user_imports.is_reference(word) and _makes_tasks(word)


def _makes_tasks(word: str) -> bool:
    """Whether a reference is to a module with the functions of tasks, or to what makes them. What
    cannot be imported or called is reviewed as something else, which says why."""
    try:
        loaded: Any = user_imports.load(word)
        own = user_imports.split_reference(word)[1]
        if own and not isinstance(loaded, type) and not _has_functions(loaded):
            loaded = loaded()
    except Exception:
        return False
    return _has_functions(loaded)


def _has_functions(thing: Any) -> bool:
    has = {x for x in ("sample", "verify", "verify_batch") if callable(getattr(thing, x, None))}
    return "sample" in has and len(has) > 1
