"""The process of one seed (see processes.py): reads its settings from the parent, trains."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import cloudpickle


def main() -> None:
    """Train into the folder named on the command line, or resume what is there."""
    path, core = sys.argv[1:]
    if core != "None":
        os.sched_setaffinity(0, {int(core)})  # before JAX counts the cores for its threads
    from sterling.training.single import carry_on
    from sterling.training.start import remember_programs

    settings = cloudpickle.loads(sys.stdin.buffer.read())
    remember_programs()
    Path(path).mkdir(parents=True, exist_ok=True)
    carry_on(settings, Path(path), ())


if __name__ == "__main__":
    main()
