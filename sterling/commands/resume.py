"""``sterling resume FOLDER``: go on from the last checkpoint, up to a larger budget if asked."""

from __future__ import annotations

import argparse
from pathlib import Path

from sterling.commands import readers, show, train
from sterling.training.choices import BUDGETS


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="of the run")
    more = "a larger budget than it was begun with, also of a finished run"
    for name in BUDGETS:
        parser.add_argument(f"--{name}", type=readers.integer, metavar="N", help=more)
    train.add_then(parser.add_argument)
    show.options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Train to the end; a finished run only shows its result. 1 if every seed failed."""
    import sterling
    from sterling.training.folder import read_config

    config = chosen.folder / "config.json"
    more = {name: getattr(chosen, name) for name in BUDGETS if getattr(chosen, name) is not None}
    done = (chosen.folder / "result.json").exists() and not more and not chosen.then
    if done or not config.exists():
        return show.summary(sterling.resume(chosen.folder))  # says what is wrong, or the result
    with show.sinks(chosen, chosen.folder, read_config(chosen.folder) | more) as sinks:
        run = sterling.resume(chosen.folder, sinks=sinks, then=chosen.then, **more)
    return show.summary(run)
