"""The commands of ``sterling``, one file each.

A command's file has ``add_options(parser)``, or ``add_options_for(parser, words)`` if its options
depend on the words typed, and ``carry_out(chosen)``, which runs it and returns the exit code. The
file is imported only when its command is used, and slow modules only when there is work to do.
"""

from importlib import import_module
from typing import Any

COMMANDS = {
    "train": "train an algorithm in an environment or from a dataset, over several seeds",
    "resume": "resume a stopped run, or extend a finished one",
    "evaluate": "evaluate a trained policy, in its environment or from a dataset",
    "show": "show what a run is, and its worst and best evaluation episodes",
    "watch": "show runs on a local page while they train: curves, settings, films",
    "play": "film a trained policy, or print a language model's answers",
    "export": "write a control policy as a file, or a language model as a Hugging Face folder",
    "serve": "answer requests for a trained policy's actions over HTTP",
    "compare": "compare algorithms or runs, with error control; add seeds until decided",
    "report": "write a page of learning curves, scores with intervals, and comparisons",
    "check": "review an algorithm or an environment of your own",
    "check-scores": "compare the scores of runs with published scores",
    "tune": "tune settings over several seeds, and test the best on fresh seeds",
    "data": "make, record, import, check, describe and relabel datasets",
    "list": "list algorithms, environments and sources, and the names of other libraries",
}

PEER_WORDS = {  # words that other libraries' command lines have -> the command here
    **dict.fromkeys(("generate", "chat", "infer", "inference", "predict", "sample"), "play"),
    **dict.fromkeys(("enjoy", "render", "film", "record-video"), "play"),
    **dict.fromkeys(("learn", "fit", "finetune", "fine-tune", "run"), "train"),
    **dict.fromkeys(("test", "score", "benchmark"), "evaluate"),
    **dict.fromkeys(("optimize", "optimise", "sweep", "hpo"), "tune"),
    **dict.fromkeys(("dashboard", "ui", "tensorboard", "board"), "watch"),
    **dict.fromkeys(("save", "convert", "push-to-hub"), "export"),
    **dict.fromkeys(("deploy", "vllm-serve"), "serve"),
    **dict.fromkeys(("plot", "plots"), "report"),
    **dict.fromkeys(("continue", "restart"), "resume"),
}


def peer_command(word: str) -> str:
    """Return which command does what a word of another library's command line says, as the end of a
    message; "" if none does."""
    name = PEER_WORDS.get(word.lower().replace("_", "-"))
    return f": write sterling {name} ({COMMANDS[name]})" if name else ""


def command_module(name: str) -> Any:
    """Import and return the module of a command."""
    return import_module(f"sterling.commands.{name.replace('-', '_')}")
