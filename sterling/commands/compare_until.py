"""``sterling compare ppo sac --environment X --steps N --until-decided``: train until decided."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sterling.algorithms import ALGORITHMS
from sterling.commands.options import option_values

REQUIRED_OPTIONS = ("environment", "steps")
TRAINING_OPTIONS = (*REQUIRED_OPTIONS, "max_seeds", "per_look", "out", "strategy", "preset")
MAX_SEEDS, SEEDS_PER_LOOK = 30, 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling compare --until-decided``."""
    group = parser.add_argument_group(
        "training until the comparison is decided",
        "Give algorithms instead of RUNs, as [LABEL=]ALGORITHM[:FIELD=VALUE,...]. Each interim "
        "look trains a few fresh seeds of the algorithms that are not yet distinguished. The same "
        "command resumes a stopped study.",
    )
    add = group.add_argument
    decided = "train more seeds until the comparison is decided"
    add("--until-decided", action="store_true", help=decided)
    add("--environment", metavar="ENVIRONMENT", help="see: sterling list environments")
    add("--steps", type=option_values.integer, metavar="N", help="environment steps per seed")
    most = f"most seeds per algorithm ({MAX_SEEDS})"
    add("--max-seeds", type=option_values.integer, metavar="N", help=most)
    looks = f"fresh seeds per algorithm and look ({SEEDS_PER_LOOK})"
    add("--per-look", type=option_values.integer, metavar="N", help=looks)
    add("--out", type=Path, metavar="FOLDER", help="folder of the study (runs/compare-...)")
    ways = "how seeds run: all at once (vmap), one after another (map), or in processes"
    add("--strategy", choices=("vmap", "map", "processes"), help=ways)
    tuned = "do not use the settings tuned for this environment"
    add("--no-preset", dest="preset", action="store_false", default=None, help=tuned)


def training_options(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the options for training that were given; raise Mistake for them without
    --until-decided."""
    if not chosen.until_decided:
        check_words(chosen)
        return {}
    given = {name: getattr(chosen, name) for name in TRAINING_OPTIONS}
    made = {name: value for name, value in given.items() if value is not None}
    return {**made, "quiet": chosen.json}


def check_words(chosen: argparse.Namespace) -> None:
    """Raise Mistake if algorithms or training options are given without --until-decided."""
    from sterling.types import Mistake

    if all(run in ALGORITHMS for run in chosen.runs):
        named = " and ".join(chosen.runs)
        raise Mistake(f"{named} are algorithms, not runs. Add --until-decided to train them.")
    given = [
        name.replace("_", "-") for name in TRAINING_OPTIONS if getattr(chosen, name) is not None
    ]
    if given:
        word = "--no-preset" if given[0] == "preset" else f"--{given[0]}"
        raise Mistake(f"{word} has an effect only with --until-decided. Add that, or leave it out.")
