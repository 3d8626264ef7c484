"""The process of some of a run's seeds (see processes.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import cloudpickle


def main() -> None:
    """Train into the folder named on the command line, pinned to the core named after it."""
    path, core = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core)})  # before JAX counts the cores for its threads
    from sterling.training.programs import remember_programs
    from sterling.training.single import carry_on

    settings = cloudpickle.loads(sys.stdin.buffer.read())
    remember_programs()
    Path(path).mkdir(parents=True, exist_ok=True)
    carry_on(settings, Path(path), ())


if __name__ == "__main__":
    main()
