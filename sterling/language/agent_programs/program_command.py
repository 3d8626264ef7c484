"""The command line of an agent program, and what it gets for a task."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling.lookup import user_imports
from sterling.system.mistake import Mistake

FIELD = re.compile(r"\{(\w+)\}")
LOOPBACK = "127.0.0.1,localhost"


def absolute_command(command: str) -> str:
    """Return a command in which files of this folder have absolute paths, so that it can be run
    from any. Raises Mistake for a command that is empty, or not a line as of a shell."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Mistake(
            f"agent={command!r} is no command line ({error}). Close its quotes."
        ) from error
    if not words:
        raise Mistake("agent is empty. Give the command that runs the program, as 'python my.py'.")
    if is_function(words):
        return shlex.join([user_imports.absolute_reference(words[0])])
    return shlex.join(os.path.abspath(word) if Path(word).is_file() else word for word in words)


def is_function(words: Sequence[str]) -> bool:
    """Whether a command is no command but a function, ``FILE.py:function``."""
    place, name = user_imports.split_reference(words[0])
    return len(words) == 1 and place.endswith(user_imports.PYTHON_SUFFIX) and bool(name)


def filled_command(command: str, task: Mapping[str, Any]) -> list[str]:
    """Return the words of a command with the task's fields in place of ``{field}``; no shell reads
    them. Raises Mistake for a field that the task lacks."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in task:
            has = ", ".join(task)
            raise Mistake(
                f"agent: the task has no field {found[1]!r} for {{{found[1]}}}; it has {has}"
            )
        field = task[found[1]]
        return field if isinstance(field, str) else json.dumps(field, ensure_ascii=False)

    return [FIELD.sub(value, word) for word in shlex.split(command)]


def program_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: this one, with ``added``. Requests to this machine go
    through no proxy. This Python's folder comes last on the path, so that ``python`` exists."""
    own = dict(os.environ)
    for name in ("no_proxy", "NO_PROXY"):
        own[name] = ",".join(filter(None, [own.get(name, ""), LOOPBACK]))
    folder = os.path.dirname(sys.executable)
    own["PATH"] = os.pathsep.join(filter(None, [own.get("PATH", ""), folder]))
    return own | dict(added)


def check_program(command: str) -> None:
    """Raise Mistake if the program of a command cannot be found."""
    words = shlex.split(command)
    if is_function(words):
        place, _ = user_imports.split_reference(words[0])
        if not Path(place).is_file():
            raise Mistake(f"agent: there is no file {place}. Give its path, as my_agent.py:run.")
        return
    name, path = words[0], program_environment({})["PATH"]
    if FIELD.search(name) is None and shutil.which(name, path=path) is None:
        raise Mistake(f"agent: there is no program {name!r}. Give its path, or install it.")
