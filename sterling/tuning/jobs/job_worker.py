"""A worker process that runs jobs (see job_pool.py): pinned to a core, it ends with its parent.

An answer is what came of the jobs, its value, and the notices of the jobs, which the parent prints.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle


def main() -> None:
    """Serve the connection whose file descriptor is the first argument, on the core in the
    second."""
    descriptor, core = int(sys.argv[1]), int(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})  # before JAX counts the cores for its threads
    orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    connection = Connection(descriptor)
    threading.Thread(target=_receive_orders, args=(connection, orders), daemon=True).start()
    from sterling.system.terminal_messages import notices_given_to
    from sterling.training.runtime.compilation import enable_compilation_cache
    from sterling.tuning.jobs.parallel_trials import JobRunner
    from sterling.types import Mistake

    enable_compilation_cache()
    lanes = JobRunner(cloudpickle.loads(orders.get()))
    while True:
        jobs = cloudpickle.loads(orders.get())
        notices: list[str] = []
        try:
            with notices_given_to(notices.append):
                answer: tuple[str, Any] = ("done", lanes.run(jobs))
        except Mistake as mistake:
            answer = ("mistake", str(mistake))
        except Exception:  # sent to the parent, which stops the study
            answer = ("broken", traceback.format_exc())
        connection.send_bytes(cloudpickle.dumps((*answer, notices)))


def _receive_orders(connection: Connection, orders: queue.SimpleQueue[bytes]) -> None:
    """Queue orders as they arrive; exit at once when the parent is gone."""
    while True:
        try:
            orders.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


if __name__ == "__main__":
    main()
