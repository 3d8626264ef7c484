"""``sterling resume FOLDER``: resume a run from its last checkpoint, or extend a finished run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sterling.commands import train
from sterling.commands.options import option_values, steering_options, training_options
from sterling.commands.output import training_output
from sterling.training.config.run_options import BUDGETS
from sterling.training.config.stop_options import STOP_OPTIONS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling resume``."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the run's folder")
    more = "a larger budget than the run's own; also extends a finished run"
    for name in BUDGETS:
        parser.add_argument(f"--{name}", type=option_values.integer, metavar="N", help=more)
    where = "environment in which a run that learned from a dataset alone acts, with --steps (the "
    where += "run's own)"
    parser.add_argument("--environment", metavar="ENV", help=where)
    training_options.add_env_option(parser.add_argument)
    train.add_then_option(parser.add_argument)
    about = "in place of the run's own; a run that stopped early goes on; off removes one"
    steering_options.add_stop_options(
        parser.add_argument_group("stopping early", about).add_argument
    )
    training_output.add_options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Train to the end of the budget, or print the result of a finished run; return 1 if every
    seed failed."""
    import sterling
    from sterling.training.runtime.program_store import use_on_command_line
    from sterling.types import Mistake

    use_on_command_line()
    if chosen.environment is not None and chosen.steps is None:
        raise Mistake("--environment needs --steps N.")
    config = chosen.folder / "config.json"
    more = {name: getattr(chosen, name) for name in BUDGETS if getattr(chosen, name) is not None}
    stops = {name: getattr(chosen, name) for name in STOP_OPTIONS}
    stops = {name: value for name, value in stops.items() if value is not None}
    changed = more or stops or chosen.then or chosen.env
    done = (chosen.folder / "result.json").exists() and not changed
    if done or not config.exists():
        return training_output.print_summary(
            sterling.resume(chosen.folder)
        )  # raises Mistake without a config.json
    shown: dict[str, Any] = {"tensorboard": bool(chosen.tensorboard), "wandb": chosen.wandb}
    shown |= {"quiet": bool(chosen.quiet), "environment": chosen.environment}
    shown |= {"env": dict(chosen.env)} if chosen.env else {}
    run = sterling.resume(chosen.folder, then=chosen.then, **shown, **more, **stops)
    return training_output.print_summary(run)
