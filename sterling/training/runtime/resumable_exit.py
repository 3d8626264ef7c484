"""Leave a run that was stopped by a signal: print how to resume it, and exit with code 75."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from sterling.system.terminal_messages import print_progress
from sterling.training.runtime.signals import EXIT_RESUMABLE, NOTHING_KEPT
from sterling.training.saving import run_folder


def exit_resumable(path: Path | None, saved_at: str) -> NoReturn:
    """Print how to resume the run in ``path``, and exit with code 75; ``saved_at``: where it was
    saved, as "step 100"; "" if it could not be saved."""
    if path is None:
        print_progress(NOTHING_KEPT)
    elif saved_at:
        print_progress(f"saved at {saved_at}; resume with: {run_folder.resume_command(path)}")
    else:
        command = run_folder.resume_command(path)
        print_progress(f"stopped, not saved; resume from the last checkpoint with: {command}")
    raise SystemExit(EXIT_RESUMABLE)
