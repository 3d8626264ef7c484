"""Options and output of the commands that train: progress, metrics and the final summary."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for where metrics are written."""
    add = parser.add_argument
    switch = argparse.BooleanOptionalAction
    add("--tensorboard", action=switch, help="also write metrics to FOLDER/tensorboard")
    add("--wandb", metavar="PROJECT", help="also log metrics to Weights & Biases")
    add("--quiet", action=switch, help="show no progress, only the summary")


def print_summary(run: Any) -> int:
    """Print the result; return 1 if every seed failed, 75 if the run's end could not be saved."""
    from sterling.report.live.live_progress import print_summary as write
    from sterling.training.runtime.signals import EXIT_RESUMABLE
    from sterling.training.saving import run_folder

    with contextlib.suppress(SystemExit):  # rich raises it if standard output is closed
        write(run.result, run.path)
    if run.path is not None and run_folder.read_result(run.path) is None:
        return EXIT_RESUMABLE
    return int(len(run.result.get("failed_seeds", [])) == len(run.result["seeds"]))
