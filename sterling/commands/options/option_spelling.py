"""Write a message's options as they are typed after a command: ``--data FILE``, not ``data=FILE``.

Most mistakes are found by what the command line and Python share, which writes options as Python
does; this is the only place where they are written for the command line.
"""

from __future__ import annotations

import re
from collections.abc import Collection

WORD = re.compile(r"(?<![^\s(])([a-z][a-z0-9_]*)=((?:'[^']*'|[^\s,;()'])+)")
NAME = re.compile(r"(?<![^\s(])([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?=[\s.,:;)]|$)")  # leave out kl_coef
OPTION_BEFORE = re.compile(r"--[a-z-]+ $")  # then NAME=VALUE is that option's value: --env a=1
IN_PYTHON = re.compile(r" \(in Python (?:[^()]|\([^()]*\))*\)")
OPTIONS_IN_BRACKETS = re.compile(r" \((--[^()]*)\)")


def spell_as_options(
    message: str, options: Collection[str], of_environment: Collection[str] = ()
) -> str:
    """Return a message with ``name=VALUE`` written ``--name VALUE`` where ``options``, those of
    the command that was typed, have ``--name``; without what is said for Python alone.

    ``of_environment``: the names given by ``--env``, which are written ``--env name=VALUE``.
    """

    def spelled(found: re.Match[str]) -> str:
        name, value = f"--{found[1].replace('_', '-')}", found[2]
        if OPTION_BEFORE.search(message[: found.start()]):
            return found[0]
        said = message[found.end() :].startswith(f" ({name}")  # that it is the run's option
        if found[1] in of_environment and not said:
            return f"--env {found[0]}"
        if name not in options:
            return found[0]
        if value == "...":  # any value
            return name
        end = value[len(value.rstrip(".:")) :]  # of the sentence
        value = re.sub(r"^'([^'\s]*)'$", r"\1", value.removesuffix(end))
        if value in ("True", "False") and f"--no-{name[2:]}" in options:
            return (name if value == "True" else f"--no-{name[2:]}") + end
        return name + ("" if value == "True" else f" {value.replace('None', 'none')}") + end

    def named(found: re.Match[str]) -> str:
        name = f"--{found[1].replace('_', '-')}"
        return name if name in options else found[0]

    def said_once(found: re.Match[str]) -> str:
        before = found.string[: found.start()]
        return "" if all(part in before for part in found[1].split(", ")) else found[0]

    message = NAME.sub(named, IN_PYTHON.sub("", message))
    return OPTIONS_IN_BRACKETS.sub(said_once, WORD.sub(spelled, message))
