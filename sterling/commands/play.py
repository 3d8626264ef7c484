"""``sterling play FOLDER``: film a trained policy, or print a language model's answers."""

from __future__ import annotations

import argparse
from pathlib import Path

from sterling.commands.options import option_values, steering_options
from sterling.commands.output import language_transcripts

DEFAULT_STEPS = 500


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling play``."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="the run's folder")
    add("--video", type=Path, metavar="FILE", help="film to write, .mp4 or .gif (FOLDER/play.mp4)")
    which = "the seed whose agent acts (the run's first)"
    add("--seed", type=option_values.integer, metavar="N", help=which)
    add("--steps", type=option_values.integer, metavar="N", help=f"steps to film ({DEFAULT_STEPS})")
    steering_options.add_policy_option(add)
    language_transcripts.add_options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Film the policy and print the film's path; or print a language model's answers."""
    import sterling

    run = sterling.load(chosen.folder)
    run = run.best if chosen.policy == "best" else run
    settings = run.settings
    seed = settings.seeds[run.place(chosen.seed)]
    language_transcripts.check_options(chosen, run)
    if settings.speech is not None:
        return language_transcripts.carry_out(chosen, run, seed)
    steps = DEFAULT_STEPS if chosen.steps is None else chosen.steps
    print(run.film(chosen.video, seed=seed, steps=steps).path)
    return 0
