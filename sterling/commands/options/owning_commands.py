"""Find which of Sterling's commands have an option: the answer to one typed after another."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from sterling import commands
from sterling.algorithms import ALGORITHMS
from sterling.commands.options import algorithm_options
from sterling.lookup.name_suggestions import nearest_names
from sterling.report.text_tables import join_words

ALGORITHM_COMMANDS = ("train", "tune")  # the settings of an algorithm are options of these
MOST_SHOWN = 8  # of a command's options; longer lists are left to --help


def about_owners(option: str, command: str, own: Sequence[str]) -> str:
    """Return which other commands have an option, and what this one has, as the end of a message;
    "" if none has it.

    ``option``: such as ``--policy``; ``command``: the command it was typed after, such as
    ``data check``; ``own``: that command's options.
    """
    owners = list(owning_commands(option, command))
    if not owners:
        return ""
    have = f"{join_words(owners)} {'has' if len(owners) == 1 else 'have'}"
    other = [each for each in own if each not in ("-h", "--help")]
    shown = nearest_names(option, other, letters=1) or (other if len(other) <= MOST_SHOWN else [])
    instead = f"has {', '.join(shown)}" if shown else "has not"
    return f": sterling {have} it; sterling {command} {instead}"


def nearest_elsewhere(option: str, command: str, own: Sequence[str]) -> str:
    """Return which option of other commands a misspelt one is nearer to than to any of ``own``, as
    the end of a message; "" if there is none."""
    parts = [part for name in commands.COMMANDS for part in _command_options(name)]
    known = [each for _, options in parts for each in options if each.startswith("--")]
    (near,) = nearest_names(option, [*own, *known]) or [""]
    if not near or near in own:
        return ""
    owners = [words for words, options in parts if near in options]
    return f"; did you mean {near} of sterling {join_words(owners)}?"


def owning_commands(option: str, command: str) -> Iterator[str]:
    """Yield the commands with an option, in the order of ``sterling --help``, without ``command``.
    An algorithm's settings count for the commands that train, unless ``command`` is one of them:
    another algorithm's setting is no option there."""
    for name in commands.COMMANDS:
        for words, options in _command_options(name):
            fields = name == ALGORITHM_COMMANDS[0] and command not in ALGORITHM_COMMANDS
            if words != command and (option in options or (fields and _is_field(option))):
                yield words


def _command_options(name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a command, or each of its subcommands, with its options."""
    module = commands.command_module(name)
    parser = argparse.ArgumentParser(add_help=False)
    add_options = getattr(module, "add_options", None)
    add_options(parser) if add_options else module.add_options_for(parser, [])
    parts = {name: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts = {f"{name} {word}": one for word, one in action.choices.items()}
    for words, one in parts.items():
        yield words, [text for action in one._actions for text in action.option_strings]


def _is_field(option: str) -> bool:
    """Whether any algorithm has a setting of this name."""
    name = option.lstrip("-").replace("-", "_")
    return any(
        name == field.name
        for each in ALGORITHMS
        for field in algorithm_options.config_fields(each)[1]
    )
