"""``sterling show RUN``: what a run is, its settings, its worst and best evaluation episodes."""

from __future__ import annotations

import argparse
from pathlib import Path

from sterling.commands.output import show_episodes, show_overview

EXPLAINED = """\
Without options it prints what the run is: its state, its result with the interval, the
settings that differ from the defaults, and its files.

--worst and --best show episodes of the last evaluation. Episodes that were not recorded
are played again with the same random numbers; that needs a finished run.

Exit code 0; 2 for wrong use."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling show``."""
    parser.epilog = EXPLAINED
    parser.add_argument("folder", metavar="RUN", type=Path, help="the run's folder")
    settings = "print the run's settings as YAML, for sterling train --config FILE"
    parser.add_argument("--config", action="store_true", help=settings)
    show_episodes.add_options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Print the run, its settings, or the episodes that were asked for."""
    from sterling.types import Mistake

    if chosen.config and show_episodes.is_asked(chosen):
        raise Mistake("--config shows settings, --worst and --best episodes. Give one of them.")
    if chosen.config:
        return _show_config(chosen.folder)
    if show_episodes.is_asked(chosen):
        return show_episodes.carry_out(chosen)
    return show_overview.carry_out(chosen.folder)


def _show_config(folder: Path) -> int:
    """Print the run's settings as YAML."""
    from sterling.training.config.config_file import config_yaml
    from sterling.training.saving.run_folder import read_config

    plain = read_config(folder)
    version = plain.get("versions", {}).get("sterling", "?")
    print(config_yaml(plain, f"sterling {version}"), end="")
    return 0
