"""A process that carries out jobs (see crew.py): pinned to a core, it ends with its parent."""

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
    """Serve the connection of the descriptor named first, on the core named second."""
    descriptor, core = int(sys.argv[1]), int(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})  # before JAX counts the cores for its threads
    orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    connection = Connection(descriptor)
    threading.Thread(target=_listen, args=(connection, orders), daemon=True).start()
    from sterling.training.programs import remember_programs
    from sterling.tuning.lanes import Lanes
    from sterling.types import Mistake

    remember_programs()
    lanes = Lanes(cloudpickle.loads(orders.get()))
    while True:
        jobs = cloudpickle.loads(orders.get())
        try:
            answer: tuple[str, Any] = ("done", lanes.run(jobs))
        except Mistake as mistake:
            answer = ("mistake", str(mistake))
        except Exception:  # told to the parent, which stops the study with it
            answer = ("broken", traceback.format_exc())
        connection.send_bytes(cloudpickle.dumps(answer))


def _listen(connection: Connection, orders: queue.SimpleQueue[bytes]) -> None:
    """Take orders as they come; with the parent gone, whatever is under way is for nobody."""
    while True:
        try:
            orders.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


if __name__ == "__main__":
    main()
