"""Train a run to its end, with the progress that was asked for, and draw its learning curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sterling.envs.hosted.failure_limit import DEFAULT, with_resume_command
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.report.live.curve_imports import CurveImports
from sterling.report.live.metric_sinks import Sink
from sterling.report.live.requested_sinks import requested_sinks
from sterling.system.terminal_messages import print_notice
from sterling.training.config.settings import Settings
from sterling.training.in_process import train_in_process
from sterling.training.processes.process_launcher import train_in_processes
from sterling.training.runtime import program_store
from sterling.training.runtime.memory_footprint import check_memory
from sterling.training.saving import run_folder
from sterling.training.trained_run import TrainedRun, run_return_bounds


def run_to_end(
    settings: Settings,
    path: Path | None,
    sinks: Sequence[Sink],
    callbacks: Sequence[Any],
    **shown: Any,
) -> TrainedRun:
    """Train, with the sinks that ``shown`` asks for, and draw the curve."""
    check_memory(settings)
    if settings.speech is not None:
        from sterling.training.language.resolve_language_settings import resolve_language_settings

        settings = resolve_language_settings(settings)  # imported here: tokenizers take time
    where = settings.name or (Path(settings.data.path).stem if settings.data else "")
    count = len(settings.seeds)
    title = f"{settings.title.upper()} on {where}, {count} seed{'s'[: count > 1]}"
    about = (title, settings.seeds, settings.updates + settings.steps)
    with requested_sinks(path, about, **shown) as more:
        ahead = [] if path is None else [CurveImports()]
        with _resume_command_in_failures(settings, path):
            run = _train_with_sinks(settings, path, [*sinks, *more, *ahead], callbacks)
    return _with_curve(run, path)


@contextmanager
def _resume_command_in_failures(settings: Settings, path: Path | None) -> Iterator[None]:
    """While entered, an environment that fails too often ends the run with the command that resumes
    it and allows more failures, if there is a run folder."""
    try:
        yield
    except WorldFailed as error:
        if path is None or not (path / "config.json").exists():
            raise
        most = int(settings.env_options.get("max_failures", DEFAULT))
        command = run_folder.resume_command(path)
        raise WorldFailed(with_resume_command(str(error), command, most)) from error


def _train_with_sinks(
    settings: Settings, path: Path | None, sinks: Sequence[Sink], callbacks: Sequence[Any]
) -> TrainedRun:
    for sink in sinks:
        if hasattr(sink, "return_within"):  # sinks that show returns with intervals
            sink.return_within = run_return_bounds(settings)
    go = train_in_processes if settings.strategy == "processes" else train_in_process
    with program_store.opened(settings):
        return go(settings, path, sinks, callbacks)


def _with_curve(run: TrainedRun, path: Path | None) -> TrainedRun:
    """Return the run, after its learning curve is drawn into its folder."""
    if path is not None and run_folder.read_result(path) is not None:
        from sterling.report.pictures.learning_curve import (
            draw_run_curve,  # matplotlib is slow to import
        )

        try:
            draw_run_curve(path)
        except OSError as error:
            curve = run_folder.curve_path(path)
            print_notice(f"{curve} was not drawn ({error}); the run is complete without it")
    return run
