"""``sterling play FOLDER``: a film of a trained policy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sterling.commands import readers


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="of the run")
    add("--video", type=Path, metavar="FILE", help=".mp4 or .gif (FOLDER/play.mp4)")
    add("--seed", type=readers.integer, metavar="N", help="whose agent acts (the run's first)")
    add("--steps", type=readers.integer, default=500, metavar="N", help="to film (500)")


def carry_out(chosen: argparse.Namespace) -> int:
    """Film, and print where the film is."""
    import jax

    import sterling
    from sterling.report.video import record
    from sterling.types import Mistake

    run = sterling.load(chosen.folder)
    settings = run.settings
    seed = settings.seeds[0] if chosen.seed is None else chosen.seed
    if seed not in settings.seeds:
        raise Mistake(f"the run has no seed {seed}; it has {', '.join(map(str, settings.seeds))}")

    def act(obs: Any) -> Any:
        action = run.policy(jax.tree.map(lambda x: x[0], obs), seed)
        return jax.tree.map(lambda x: x[None], action)

    path = chosen.video or chosen.folder / "play.mp4"
    record(settings.environment, settings.env_options, act, path, steps=chosen.steps, seed=seed)
    print(path)
    return 0
