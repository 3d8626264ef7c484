"""Parse the command line.

Only the requested command is imported, for its options; ``sterling --help`` imports none.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from sterling import commands
from sterling.lookup.name_suggestions import did_you_mean
from sterling.lookup.peer_names import unknown_option
from sterling.version import __version__

WRONG_USE = 2  # exit code
NEGATIVE_NUMBER = re.compile(
    r"-(\.?\d|inf)"
)  # how a negative number begins: -1e-3, -.5, -1_000, -inf
EXAMPLES = """\
examples:
  sterling train ppo HalfCheetah-v5 --steps 1_000_000 --seeds 5 --out runs/cheetah --lr 3e-4
  sterling resume runs/cheetah
  sterling train iql data/hopper --updates 100_000 --seeds 5 --out runs/iql
  sterling evaluate runs/cheetah --episodes 20
  sterling evaluate runs/iql --data data/hopper --method fqe
  sterling show runs/cheetah --worst 3
  sterling watch runs/
  sterling play runs/cheetah --video cheetah.mp4
  sterling compare runs/cheetah-ppo runs/cheetah-sac
  sterling compare ppo sac --environment Hopper-v5 --steps 200_000 --until-decided
  sterling report runs/* --out report/
  sterling data make Hopper-v5 --quality medium-replay --size 400_000 --out data/hopper
  sterling tune ppo LunarLander-v3 --trials 64 --steps 200_000
  sterling list environments cheetah
"""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line, without the usage."""

    about = ""  # the algorithm whose options were added
    lenient = False  # ignore unknown options: another error will be reported later

    def __init__(self, **options: Any):
        super().__init__(formatter_class=HelpFormatter, allow_abbrev=False, **options)
        self._negative_number_matcher = (
            NEGATIVE_NUMBER  # argparse's pattern takes -1e-3 for an option
        )

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with code 2."""
        asked = f"{self.prog} {self.about}".strip()
        self.exit(
            WRONG_USE, f"sterling: {message.removeprefix('argument ')} (see {asked} --help)\n"
        )


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A help formatter that keeps examples' lines, and shows switches as ``--[no-]anneal``."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=34)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, argparse.BooleanOptionalAction):
            return action.option_strings[0].replace("--", "--[no-]", 1)
        return super()._format_action_invocation(action)


def parse_command_line(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed options, and in ``option_names`` those that the command has; exit with code
    2 and one line for wrong ones."""
    words = _with_hyphens(words) or ["--help"]
    asked = words[0]
    parser = Parser(
        prog="sterling",
        description="Reinforcement learning for every source of experience.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"sterling {__version__}")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    made = {name: parsers.add_parser(name, help=h) for name, h in commands.COMMANDS.items()}
    if asked in made:
        _add_options(made[asked], asked, words[1:])
    elif not asked.startswith("-"):
        near = commands.peer_command(asked) or did_you_mean(asked, made)
        parser.error(f"there is no command {asked!r}{near}")
    chosen, unknown = parser.parse_known_args(words)
    used = made[asked]
    for action in used._actions:
        if isinstance(action, argparse._SubParsersAction):
            used = action.choices.get(getattr(chosen, action.dest), used)
    known = [text for action in used._actions for text in action.option_strings]
    if unknown and not made[asked].lenient:
        _refuse_unknown(used, known, unknown)
    chosen.option_names = known
    return chosen


def _refuse_unknown(parser: Parser, known: Sequence[str], unknown: Sequence[str]) -> NoReturn:
    """Print every unknown option, or else the first unknown word, with what to write; exit."""
    from sterling.commands.options import owning_commands

    if not unknown[0].startswith("-"):
        parser.error(f"Unexpected word {unknown[0].partition('=')[0]!r}")
    command = parser.prog.removeprefix("sterling ")
    told = {}  # an option that is given twice is told once
    for word, following in zip(unknown, [*unknown[1:], "--"], strict=True):
        wrong, equals, value = word.partition("=")
        if not wrong.startswith("-") or NEGATIVE_NUMBER.match(wrong):
            continue  # the value of the option before it
        if not equals and not following.startswith("--"):
            value = following
        owners = owning_commands.about_owners(wrong, command, known)
        elsewhere = "" if owners else owning_commands.nearest_elsewhere(wrong, command, known)
        said = {"owners": owners, "elsewhere": elsewhere}
        near = unknown_option(wrong, known, value=value or None, **said)
        told[wrong] = f"Unknown option {wrong}{near}"
    parser.error("; ".join(told.values()))


def _add_options(parser: Parser, command: str, words: Sequence[str]) -> None:
    """Add a command's options to its parser; some of them depend on the following words."""
    module = commands.command_module(command)
    parser.description = commands.COMMANDS[command]
    if hasattr(module, "add_options_for"):
        module.add_options_for(parser, words)
    else:
        module.add_options(parser)
    parser.formatter_class = HelpFormatter


def _with_hyphens(words: Sequence[str]) -> list[str]:
    """Return the words with ``--max_grad_norm`` written as ``--max-grad-norm``."""
    tidy: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if word.startswith("--") else name
        tidy.append(name + equals + value)
    return tidy
