"""Open the sinks that a user asks for by options: TensorBoard, Weights & Biases, progress."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path

from sterling.report.live.metric_sinks import Sink, TensorBoard, WeightsAndBiases
from sterling.system.mistake import Mistake


@contextlib.contextmanager
def requested_sinks(
    out: Path | None,
    about: tuple[str, Sequence[int], int],
    *,
    tensorboard: bool = False,
    wandb: str | None = None,
    quiet: bool | None = None,
) -> Iterator[list[Sink]]:
    """Context manager with the sinks of a run in the folder ``out`` (None: it has none).

    ``about``: the run's title, its seeds, and its budget in steps and updates together. Raise
    Mistake if ``tensorboard`` is asked for without a folder. ``quiet``: None writes progress to
    standard error, but not in processes that another Python process started; False writes it to
    standard output, as the command line does. Progress is closed at the end; the run itself closes
    the other sinks.
    """
    made: list[Sink] = []
    if tensorboard:
        if out is None:
            raise Mistake("tensorboard=True writes into the run's folder. Give out=FOLDER.")
        made.append(TensorBoard(out / "tensorboard"))
    if wandb:
        made.append(WeightsAndBiases(wandb, name=None if out is None else out.name))
    if multiprocessing.parent_process() is not None if quiet is None else quiet:
        yield made
        return
    from sterling.report.live.console import PlainConsole
    from sterling.report.live.live_progress import Progress

    title, seeds, budget = about
    console = PlainConsole(stderr=quiet is None)
    with contextlib.closing(Progress(budget, seeds, title, console)) as progress:
        yield [*made, progress]
