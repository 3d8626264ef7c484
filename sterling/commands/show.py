"""What commands that train show while they do, and at the end."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling import importing

if TYPE_CHECKING:
    from sterling.report.metrics import Sink


def options(parser: argparse.ArgumentParser) -> None:
    """Where the metrics go."""
    add = parser.add_argument
    add("--tensorboard", action="store_true", help="write FOLDER/tensorboard as well")
    add("--wandb", metavar="PROJECT", help="log to Weights & Biases as well")
    add("--quiet", action="store_true", help="no progress, only the summary")


@contextlib.contextmanager
def sinks(chosen: argparse.Namespace, out: Path, run: dict[str, Any]) -> Iterator[list[Sink]]:
    """What the options ask for; ``run`` has algorithm, environment, seeds, and its budget of
    steps or updates."""
    from sterling.report.metrics import TensorBoard, WeightsAndBiases
    from sterling.report.progress import Progress

    made: list[Sink] = []
    if chosen.tensorboard:
        made.append(TensorBoard(out / "tensorboard"))
    if chosen.wandb:
        made.append(WeightsAndBiases(chosen.wandb, name=out.name))
    if chosen.quiet:
        yield made
        return
    seeds = run["seeds"]
    count = seeds if isinstance(seeds, int) else len(seeds)
    algorithm, world = importing.short(run["algorithm"]), importing.short(run["environment"])
    title = f"{algorithm.upper()} on {world}, {count} seed{'s'[: count > 1]}"
    with contextlib.closing(
        Progress((run.get("updates") or 0) + (run["steps"] or 0), seeds, title)
    ) as progress:
        yield [*made, progress]


def summary(run: Any) -> int:
    """Print what came out; 1 if no seed did, 75 where the run's end could not be saved."""
    from sterling.report.progress import summary as write
    from sterling.training import folder
    from sterling.training.guard import EXIT_RESUMABLE

    with contextlib.suppress(SystemExit):  # of rich, where nobody reads it any more
        write(run.result, run.path)
    if run.path is not None and folder.read_result(run.path) is None:
        return EXIT_RESUMABLE
    return int(len(run.result.get("failed_seeds", [])) == len(run.result["seeds"]))
