"""The words of the command line, as settings.

An algorithm's options are the fields of its Config, and their help is the comment beside each
field, read from the file's text: nothing slow (JAX) is imported before there is work to do.
That is why this is argparse: a parser made from the dataclass itself would have to import it.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import tokenize
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from sterling import __version__
from sterling.algorithms import ALGORITHMS

WRONG_USE = 2  # exit code
EXAMPLES = """\
examples:
  sterling train ppo HalfCheetah-v5 --steps 1_000_000 --seeds 5 --out runs/cheetah --lr 3e-4
  sterling resume runs/cheetah
  sterling evaluate runs/cheetah --episodes 20
  sterling play runs/cheetah --video cheetah.mp4
  sterling list environments cheetah
"""


class Parser(argparse.ArgumentParser):
    """Wrong words cost one line, not the whole usage."""

    algorithm = ""  # the one whose settings are known

    def __init__(self, **options: Any):
        super().__init__(formatter_class=Help, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and leave with code 2."""
        asked = f"{self.prog} {self.algorithm}".strip()
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


@dataclass(frozen=True)
class Field:
    """One field of a Config, as its source says it."""

    name: str
    kind: str
    default: str
    comment: str

    def add_to(self, group: Any) -> None:
        """Make it an option; without it the preset's or the Config's value stands."""
        plain = {"True": "on", "False": "off", 'float("inf")': "inf", "None": "none"}
        default = plain.get(self.default, self.default.strip('"'))
        options: dict[str, Any] = {"dest": self.name, "default": argparse.SUPPRESS}
        options["help"] = f"{self.comment} ({default})".replace("%", "%%").strip()
        if self.kind == "bool":
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"], options["metavar"] = _reader(self.kind)
        group.add_argument("--" + self.name.replace("_", "-"), **options)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The words as settings, ``own`` among them: the algorithm's fields that were set.

    Leaves with one line and code 2 where the words are wrong.
    """
    words = _tidied(words) or ["--help"]
    algorithm = next((word for word in words if word in ALGORITHMS), None)
    if words[0] != "train":
        algorithm = None
    parser, commands = _parser(algorithm)
    if not words[0].startswith("-") and words[0] not in commands:
        parser.error(f"there is no command {words[0]!r}{_near(words[0], commands)}")
    chosen, unknown = parser.parse_known_args(words)
    fields = _config(algorithm)[1] if algorithm else []
    chosen.own = {f.name: getattr(chosen, f.name) for f in fields if hasattr(chosen, f.name)}
    if unknown and getattr(chosen, "algorithm", algorithm) == algorithm:
        command, wrong = commands[chosen.command], unknown[0].split("=")[0]
        known = [text for action in command._actions for text in action.option_strings]
        command.error(f"{wrong} is not known{_near(wrong, known)}")
    return chosen


def first_line(algorithm: str) -> str:
    """What an algorithm is, as its file begins."""
    text = ast.get_docstring(ast.parse(_source(algorithm))) or ""
    return text.split("\n")[0]


def _parser(algorithm: str | None) -> tuple[Parser, dict[str, Parser]]:
    """The whole parser, with the fields of one algorithm, and the parser of each command."""
    parser = Parser(
        prog="sterling",
        description="Reinforcement learning for every source of experience.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"sterling {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    parsers = {
        "train": _train_parser(commands, algorithm),
        "resume": commands.add_parser("resume", help="go on with a run that was stopped"),
        "evaluate": commands.add_parser("evaluate", help="fresh episodes of a trained policy"),
        "play": commands.add_parser("play", help="film a trained policy"),
        "list": commands.add_parser("list", help="what there is to train, and to train on"),
    }
    for name in ("resume", "evaluate", "play"):
        parsers[name].add_argument("folder", metavar="FOLDER", type=Path, help="of the run")
    _sink_options(parsers["resume"])
    add = parsers["evaluate"].add_argument
    add("--episodes", type=_integer, default=20, metavar="N", help="per seed (20)")
    add = parsers["play"].add_argument
    add("--video", type=Path, metavar="FILE", help=".mp4 or .gif (FOLDER/play.mp4)")
    add("--seed", type=_integer, metavar="N", help="whose agent acts (the run's first)")
    add("--steps", type=_integer, default=500, metavar="N", help="to film (500)")
    kinds = parsers["list"].add_subparsers(dest="kind", metavar="KIND", required=True)
    kinds.add_parser("algorithms", help="and what each is")
    environments = kinds.add_parser("environments", help="all, or those that hold a pattern")
    environments.add_argument("pattern", nargs="?", default="", metavar="PATTERN")
    return parser, parsers


def _train_parser(commands: Any, algorithm: str | None) -> Parser:
    """``sterling train``, with the settings of ``algorithm`` if it is known already."""
    names = ", ".join(ALGORITHMS)
    parser: Parser = commands.add_parser(
        "train",
        help="train an algorithm on an environment, over several seeds",
        usage=f"sterling train {algorithm or 'ALGORITHM'} ENVIRONMENT --steps N [options]",
        description=first_line(algorithm)
        if algorithm
        else f"Algorithms: {names}. `sterling train ALGORITHM --help` lists its own settings too.",
    )
    add = parser.add_argument
    add("algorithm", metavar="ALGORITHM", help="see: sterling list algorithms")
    add("environment", metavar="ENVIRONMENT", help="see: sterling list environments")
    add("--steps", type=_integer, required=True, metavar="N", help="environment steps per seed")
    add("--seeds", type=_seeds, default=1, metavar="N", help="how many, or which: 3,7,8 (1)")
    add("--out", type=Path, metavar="FOLDER", help="of the run (runs/ALGORITHM-ENVIRONMENT-TIME)")
    add("--envs", type=_integer, metavar="N", help="parallel environments per seed")
    example = "an option of the environment, as max_episode_steps=500; may be repeated"
    add("--env", type=_pair, action="append", default=[], metavar="KEY=VALUE", help=example)
    add("--strategy", choices=("vmap", "map", "processes"), help="how the seeds are run")
    per_seed = "per seed, of the final policies (20)"
    add("--evaluate-episodes", type=_integer, default=20, metavar="N", help=per_seed)
    add("--log-every", type=_integer, metavar="N", help="steps between rows (a hundredth of all)")
    add("--checkpoint-minutes", type=_number, default=5.0, metavar="X", help="between saves (5)")
    tuned = "leave out the settings tuned for this environment"
    add("--no-preset", dest="preset", action="store_false", help=tuned)
    _sink_options(parser)
    if algorithm:
        parser.algorithm = algorithm
        about, fields = _config(algorithm)
        group = parser.add_argument_group(f"settings of {algorithm}", about)
        for field in fields:
            field.add_to(group)
    return parser


def _sink_options(parser: Parser) -> None:
    add = parser.add_argument
    add("--tensorboard", action="store_true", help="write FOLDER/tensorboard as well")
    add("--wandb", metavar="PROJECT", help="log to Weights & Biases as well")
    add("--quiet", action="store_true", help="no progress, only the summary")


def _config(algorithm: str) -> tuple[str, list[Field]]:
    """The docstring and the fields of an algorithm's Config, from its file's text."""
    text = _source(algorithm)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    notes = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    config = next(node for node in classes if node.name == "Config")
    fields = [
        Field(
            node.target.id,
            ast.unparse(node.annotation),
            ast.get_source_segment(text, node.value) or "",
            notes.get(node.end_lineno or 0, ""),
        )
        for node in config.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
    ]
    return ast.get_docstring(config) or "", fields


def _source(algorithm: str) -> str:
    """The text of an algorithm's file."""
    file = Path(__file__).parents[1].joinpath(*ALGORITHMS[algorithm].split("."))
    return file.with_suffix(".py").read_text(encoding="utf-8")


def _reader(kind: str) -> tuple[Callable[[str], Any], str]:
    """How a field of this type is read, and what stands for its value in the help."""
    known: dict[str, tuple[Callable[[str], Any], str]] = {
        "float": (_number, "X"),
        "int": (_integer, "N"),
        "str": (str, "TEXT"),
    }
    read, shown = known.get(kind.removesuffix(" | None"), (_value, "VALUE"))
    if not kind.endswith(" | None"):
        return read, shown
    return (lambda text: None if text.lower() == "none" else read(text)), shown


def _number(text: str) -> float:
    """0.1, 1e-4, 1_000 or inf."""
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error


def _integer(text: str) -> int:
    """1000, 1_000 or 1e3."""
    number = _number(text)
    if not number.is_integer():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(number)


def _seeds(text: str) -> int | list[int]:
    """How many, or which, apart by commas."""
    return [_integer(part) for part in text.split(",") if part] if "," in text else _integer(text)


def _pair(text: str) -> tuple[str, Any]:
    """KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, _value(value)


def _value(text: str) -> Any:
    """A Python literal, true, false or none; anything else is text."""
    plain = {"true": True, "false": False, "none": None}
    if text.lower() in plain:
        return plain[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a word
        return text


def _near(wrong: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _tidied(words: Sequence[str]) -> list[str]:
    """``--max_grad_norm`` as ``--max-grad-norm``; ``--log-std -1e-3`` as ``--log-std=-1e-3``,
    which argparse would take for an option."""
    tidy: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            tidy.append(name.replace("_", "-") + equals + value)
        elif tidy and tidy[-1].startswith("--") and "=" not in tidy[-1] and _is_negative(word):
            tidy[-1] += f"={word}"
        else:
            tidy.append(word)
    return tidy


def _is_negative(word: str) -> bool:
    return word.startswith("-") and word[1:2] in tuple("0123456789.i")
