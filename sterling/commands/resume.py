"""``sterling resume FOLDER``: go on from the last checkpoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sterling.commands import show


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="of the run")
    show.options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Train to the end; a finished run only shows its result. 1 if every seed failed."""
    import sterling

    config = chosen.folder / "config.json"
    if not config.exists() or (chosen.folder / "result.json").exists():
        return show.summary(sterling.resume(chosen.folder))  # says what is wrong, or the result
    with show.sinks(chosen, chosen.folder, json.loads(config.read_text())) as sinks:
        run = sterling.resume(chosen.folder, sinks=sinks)
    return show.summary(run)
