"""``sterling play FOLDER``: a film of a trained policy, or what a language model says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sterling.commands import readers, transcripts

STEPS = 500


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="of the run")
    add("--video", type=Path, metavar="FILE", help=".mp4 or .gif (FOLDER/play.mp4)")
    add("--seed", type=readers.integer, metavar="N", help="whose agent acts (the run's first)")
    add("--steps", type=readers.integer, metavar="N", help=f"to film ({STEPS})")
    transcripts.options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Film, and print where the film is; or print what was said."""
    import sterling

    run = sterling.load(chosen.folder)
    settings = run.settings
    seed = settings.seeds[run.place(chosen.seed)]
    transcripts.refuse(chosen, run)
    if settings.speech is not None:
        return transcripts.carry_out(chosen, run, seed)
    return _film(chosen, run, seed)


def _film(chosen: argparse.Namespace, run: Any, seed: int) -> int:
    import jax

    from sterling.report.video import record
    from sterling.training.start import needs_world

    needs_world(run.settings)
    player = run.player(seed)

    def act(obs: Any) -> Any:
        action = player.act(jax.tree.map(lambda x: x[0], obs))
        return jax.tree.map(lambda x: x[None], action)

    path = chosen.video or chosen.folder / "play.mp4"
    settings, steps = run.settings, STEPS if chosen.steps is None else chosen.steps
    where = settings.environment, settings.env_options
    record(*where, act, path, notice=player.notice, steps=steps, seed=seed)
    print(path)
    return 0
