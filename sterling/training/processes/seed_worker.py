"""The worker process that trains some of a run's seeds (see process_launcher.py)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import cloudpickle

LENGTH_BYTES = 8  # bytes of the length of the pickled settings that follow on standard input
ERROR_PREFIX = "sterling: "  # prefix of a last line that is an error for the user
WRONG_USE, WORLD_FAILED = 2, 1  # exit codes after such a line, the same as the command line's


def main() -> int:
    """Train into the folder given as first argument, pinned to the core given as the second.

    An error that the user can fix is printed as the last line on standard error.
    """
    path, core = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core)})  # before JAX counts the cores for its threads
    length = int.from_bytes(sys.stdin.buffer.read(LENGTH_BYTES), "big")
    content = sys.stdin.buffer.read(length)
    threading.Thread(target=_stop_with_parent, name="parent", daemon=True).start()
    from sterling.envs.hosted.worker_pool import WorldFailed
    from sterling.training.in_process import train_in_process
    from sterling.training.runtime.compilation import enable_compilation_cache
    from sterling.training.steering.process_agreement import ProcessAgreement
    from sterling.types import Mistake

    enable_compilation_cache()
    Path(path).mkdir(parents=True, exist_ok=True)
    try:
        settings, callbacks, folders = cloudpickle.loads(content)
        agreement = ProcessAgreement(Path(path), folders)
        train_in_process(settings, Path(path), (), callbacks, agreement)
        agreement.end()  # not after a signal: then the others are stopped too
    except (Mistake, WorldFailed) as error:
        print(f"{ERROR_PREFIX}{error}", file=sys.stderr)
        return WRONG_USE if isinstance(error, Mistake) else WORLD_FAILED
    return 0


def _stop_with_parent() -> None:
    """Stop this process when standard input ends: the parent has closed it, or is gone."""
    os.read(sys.stdin.fileno(), 1)  # not sys.stdin: holding its lock at exit would be fatal
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
