"""``sterling evaluate FOLDER``: fresh episodes of every seed's policy."""

from __future__ import annotations

import argparse
from pathlib import Path

from sterling.commands import readers


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="of the run")
    add("--episodes", type=readers.integer, default=20, metavar="N", help="per seed (20)")


def carry_out(chosen: argparse.Namespace) -> int:
    """Print each seed's return, and all seeds' with its interval."""
    import sterling
    from sterling.report.progress import written
    from sterling.statistics import Estimate

    run = sterling.load(chosen.folder)
    scores = run.evaluate(chosen.episodes)["return"]
    for seed, score in zip(run.settings.seeds, scores["per_seed"], strict=True):
        print(f"seed {seed:<5} {'failed' if score is None else f'{score:.6g}'}")
    made = written(Estimate.from_json(scores), explain=True)
    print(f"return     {made}, {chosen.episodes} episodes each")
    return 0
