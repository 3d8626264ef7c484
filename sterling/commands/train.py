"""``sterling train ALGORITHM ENVIRONMENT --steps N``: several seeds in one program."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.algorithms import ALGORITHMS
from sterling.commands import fields, readers, show

FORWARDED = (
    *("steps", "seeds", "envs", "strategy", "preset", "evaluate_episodes"),
    *("checkpoint_minutes", "log_every"),
)


def options_for(parser: Any, words: Sequence[str]) -> None:
    """What can be asked for, with the settings of the algorithm among ``words``."""
    algorithm = next((word for word in words if word in ALGORITHMS), None)
    options(parser)
    if algorithm is None:
        parser.lenient = True  # without the algorithm its settings cannot be told from mistakes
        names = ", ".join(ALGORITHMS)
        parser.description = (
            f"Algorithms: {names}. `sterling train ALGORITHM --help` lists its own settings too."
        )
        return
    parser.description, parser.about = fields.first_line(algorithm), algorithm
    parser.usage = parser.usage.replace("ALGORITHM", algorithm)
    about, own = fields.config(algorithm)
    group = parser.add_argument_group(f"settings of {algorithm}", about)
    for field in own:
        field.add_to(group)


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of every algorithm."""
    parser.usage = "sterling train ALGORITHM ENVIRONMENT --steps N [options]"
    add = parser.add_argument
    add("algorithm", metavar="ALGORITHM", help="see: sterling list algorithms")
    add("environment", metavar="ENVIRONMENT", help="see: sterling list environments")
    budget = "environment steps per seed"
    add("--steps", type=readers.integer, required=True, metavar="N", help=budget)
    which = "how many, or which: 3,7,8 (1)"
    add("--seeds", type=readers.seeds, default=1, metavar="N", help=which)
    add("--out", type=Path, metavar="FOLDER", help="of the run (runs/ALGORITHM-ENVIRONMENT-TIME)")
    add("--envs", type=readers.integer, metavar="N", help="parallel environments per seed")
    example = "an option of the environment, as max_episode_steps=500; may be repeated"
    add("--env", type=readers.pair, action="append", default=[], metavar="KEY=VALUE", help=example)
    add("--strategy", choices=("vmap", "map", "processes"), help="how the seeds are run")
    per_seed = "per seed, of the final policies (20)"
    add("--evaluate-episodes", type=readers.integer, default=20, metavar="N", help=per_seed)
    rows = "steps between rows (a hundredth of all)"
    add("--log-every", type=readers.integer, metavar="N", help=rows)
    saves = "between saves (5)"
    add("--checkpoint-minutes", type=readers.number, default=5.0, metavar="X", help=saves)
    tuned = "leave out the settings tuned for this environment"
    add("--no-preset", dest="preset", action="store_false", help=tuned)
    show.options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Train, and print what came out; 1 if every seed failed."""
    import sterling
    from sterling import algorithms
    from sterling.envs.registry import find

    algorithms.find(chosen.algorithm)  # a wrong name is told before anything is begun
    find(chosen.environment)
    now = datetime.datetime.now()
    name = f"{chosen.algorithm}-{chosen.environment.replace('/', '-')}-{now:%Y%m%d-%H%M%S}"
    out = chosen.out or Path("runs") / name
    given = {name: getattr(chosen, name) for name in FORWARDED}
    asked = {name: value for name, value in given.items() if value is not None} | own(chosen)
    with show.sinks(chosen, out, vars(chosen)) as sinks:
        run = sterling.train(
            chosen.algorithm,
            chosen.environment,
            out=out,
            sinks=sinks,
            env_options=dict(chosen.env),
            **asked,
        )
    return show.summary(run)


def own(chosen: argparse.Namespace) -> dict[str, Any]:
    """The algorithm's fields that were set."""
    names = [field.name for field in fields.config(chosen.algorithm)[1]]
    return {name: getattr(chosen, name) for name in names if hasattr(chosen, name)}
