"""The words of the command line, as settings.

Only the command that is asked for is imported, for its options; ``sterling --help`` imports none.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from sterling import __version__, commands
from sterling.naming import hint

WRONG_USE = 2  # exit code
NEGATIVE = re.compile(r"-(\.?\d|inf)")  # how a negative number begins: -1e-3, -.5, -1_000, -inf
EXAMPLES = """\
examples:
  sterling train ppo HalfCheetah-v5 --steps 1_000_000 --seeds 5 --out runs/cheetah --lr 3e-4
  sterling resume runs/cheetah
  sterling train iql data/hopper --updates 100_000 --seeds 5 --out runs/iql
  sterling evaluate runs/cheetah --episodes 20
  sterling evaluate runs/iql --data data/hopper --method fqe
  sterling play runs/cheetah --video cheetah.mp4
  sterling compare runs/cheetah-ppo runs/cheetah-sac
  sterling compare ppo sac --environment Hopper-v5 --steps 200_000 --until-decided
  sterling report runs/* --out report/
  sterling data make Hopper-v5 --quality medium-replay --size 400_000 --out data/hopper
  sterling tune ppo LunarLander-v3 --trials 64 --steps 200_000
  sterling list environments cheetah
"""


class Parser(argparse.ArgumentParser):
    """Wrong words cost one line, not the whole usage."""

    about = ""  # the algorithm whose settings are known
    lenient = False  # unknown words are passed over: what is wrong will be said later

    def __init__(self, **options: Any):
        super().__init__(formatter_class=Help, allow_abbrev=False, **options)
        self._negative_number_matcher = NEGATIVE  # argparse's own takes -1e-3 for an option

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and leave with code 2."""
        asked = f"{self.prog} {self.about}".strip()
        self.exit(
            WRONG_USE, f"sterling: {message.removeprefix('argument ')} (see {asked} --help)\n"
        )


class Help(argparse.RawDescriptionHelpFormatter):
    """Examples keep their lines; a switch is written once, as ``--[no-]anneal``."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=34)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, argparse.BooleanOptionalAction):
            return action.option_strings[0].replace("--", "--[no-]", 1)
        return super()._format_action_invocation(action)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The words as settings; leaves with one line and code 2 where the words are wrong."""
    words = _tidied(words) or ["--help"]
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
        _fill(made[asked], asked, words[1:])
    elif not asked.startswith("-"):
        parser.error(f"there is no command {asked!r}{hint(asked, made)}")
    chosen, unknown = parser.parse_known_args(words)
    if unknown and not made[asked].lenient:
        wrong = unknown[0].split("=")[0]
        known = [text for action in made[asked]._actions for text in action.option_strings]
        made[asked].error(f"{wrong} is not known{hint(wrong, known)}")
    return chosen


def _fill(parser: Parser, command: str, words: Sequence[str]) -> None:
    """Give a command's parser its options; some depend on the words that follow."""
    module = commands.find(command)
    parser.description = commands.COMMANDS[command]
    if hasattr(module, "options_for"):
        module.options_for(parser, words)
    else:
        module.options(parser)
    parser.formatter_class = Help


def _tidied(words: Sequence[str]) -> list[str]:
    """``--max_grad_norm`` as ``--max-grad-norm``."""
    tidy: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if word.startswith("--") else name
        tidy.append(name + equals + value)
    return tidy
