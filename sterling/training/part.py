"""The process of some of a run's seeds (see processes.py)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import cloudpickle

LENGTH = 8  # bytes that say how long the settings are that follow them on standard input
TOLD = "sterling: "  # begins a last line that is meant for the user
WRONG_USE, WORLD_FAILED = 2, 1  # exit codes after such a line, as the command line's are


def main() -> int:
    """Train into the folder named on the command line, pinned to the core named after it.

    What is the user's to put right is said in the last line on standard error.
    """
    path, core = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core)})  # before JAX counts the cores for its threads
    length = int.from_bytes(sys.stdin.buffer.read(LENGTH), "big")
    content = sys.stdin.buffer.read(length)
    threading.Thread(target=_leave_with_parent, name="parent", daemon=True).start()
    from sterling.envs.workers import WorldFailed
    from sterling.training.programs import remember_programs
    from sterling.training.single import carry_on
    from sterling.types import Mistake

    remember_programs()
    Path(path).mkdir(parents=True, exist_ok=True)
    try:
        carry_on(cloudpickle.loads(content), Path(path), ())
    except (Mistake, WorldFailed) as error:
        print(f"{TOLD}{error}", file=sys.stderr)
        return WRONG_USE if isinstance(error, Mistake) else WORLD_FAILED
    return 0


def _leave_with_parent() -> None:
    """Standard input ends when the parent closes it, to have this process stop, and when the
    parent is gone, however it ended."""
    os.read(sys.stdin.fileno(), 1)  # not sys.stdin: its lock, held on leaving, would be fatal
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
