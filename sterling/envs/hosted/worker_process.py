"""One worker process, as the trainer sees it: started, sent messages, waited for and killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sterling.envs.hosted.worker_loop import CLOSE_SECONDS, WORKER_SCRIPT, send_message

START_SECONDS = 120.0  # seconds, beside `timeout`, to start a process and build an environment


class WorkerProcess:
    """One worker process.

    ``line`` is the socket to it, ``has_factory`` says whether it was sent the factory, ``running``
    that it has not been ended.
    """

    def __init__(self, memory: int):
        self.has_factory, self.running = False, True
        self.line, theirs = socket.socketpair()
        package = str(Path(__file__).parents[3])  # of Sterling, wherever it was imported from
        paths = json.dumps(list(dict.fromkeys([*map(str, sys.path), package])))
        single = {"OMP_NUM_THREADS": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", WORKER_SCRIPT, paths, str(theirs.fileno()), str(memory)],
                stdin=subprocess.PIPE,  # open as long as the trainer runs
                pass_fds=(theirs.fileno(), memory),
                start_new_session=True,
                env={**single, **os.environ},
            )

    def send(self, message: Any) -> None:
        """Send a message; the first one must be the pickled factory. If the process is gone, no
        answer will come."""
        self.has_factory = True
        self.line.settimeout(START_SECONDS)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            send_message(self.line, message)

    def describe_exit(self) -> str:
        """Describe how the process ended."""
        try:
            code = self._popen.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return "its process stopped answering"
        if code >= 0:
            return f"its process exited with code {code}"
        name = signal.Signals(-code).name
        return f"its process died of {name}" + " (out of memory?)" * (name == "SIGKILL")

    def wait_and_kill(self, deadline: float) -> None:
        """Wait until ``deadline`` for the process to end, then kill it; its line must be closed
        before."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(max(deadline - time.monotonic(), 0.0))
        self.kill()

    def kill(self) -> None:
        """Kill the process and everything it has started."""
        if not self.running:
            return
        self.running = False
        # already gone; for a group of zombies macOS raises PermissionError
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.communicate()  # waits for its end and closes its standard input
        self.line.close()


def stop_workers(processes: list[WorkerProcess], memory: int, owner: int) -> None:
    """End all workers; no-op in a forked child of their owner."""
    if os.getpid() != owner:
        return
    for process in processes:
        process.line.close()
    deadline = time.monotonic() + CLOSE_SECONDS
    for process in processes:
        process.wait_and_kill(deadline)
    os.close(memory)
