"""The commands of ``sterling``, one file each: its options, and how it is carried out.

A command's file is imported only when that command is asked for, and imports what is slow only
when there is work to do. It has ``options(parser)`` and ``carry_out(chosen) -> exit code``.
"""

from importlib import import_module
from typing import Any

COMMANDS = {
    "train": "train an algorithm in an environment or from a log, over several seeds",
    "resume": "go on with a run that was stopped",
    "evaluate": "a trained policy's worth, in the world or from a log",
    "play": "film a trained policy, or print what a language model says",
    "export": "write a language model that was taught as Hugging Face's folders are",
    "compare": "who is better, how surely, and how many seeds it takes to know",
    "report": "a page of curves, intervals and decisions",
    "check": "review an algorithm or an environment of your own",
    "check-scores": "scores beside the published ones",
    "tune": "search settings over several seeds, judged on fresh ones",
    "data": "make, convert, check, describe and relabel logged experience",
    "list": "what there is to train, and to train on",
}


def find(name: str) -> Any:
    """A command's file."""
    return import_module(f"sterling.commands.{name.replace('-', '_')}")
