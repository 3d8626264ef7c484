"""What the end of a run adds: to a failure the command that resumes it, else the learning curve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sterling.envs.hosted.failure_limit import DEFAULT, with_resume_command
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.system.terminal_messages import print_notice
from sterling.training.config.settings import Settings
from sterling.training.saving import run_folder
from sterling.training.trained_run import TrainedRun


@contextmanager
def resume_command_in_failures(settings: Settings, path: Path | None) -> Iterator[None]:
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


def with_curve(run: TrainedRun, path: Path | None) -> TrainedRun:
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
