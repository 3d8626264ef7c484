"""Who carries out the jobs: this process, or one process per core.

A wave of jobs is cut into pieces, each one program with one budget; whoever is free takes the next
piece. Which process runs a piece changes no number, so a study does not depend on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cloudpickle

from sterling import pickling
from sterling.tuning import members
from sterling.tuning.lanes import Lanes, Plan, Stopped
from sterling.tuning.search import Job
from sterling.types import Mistake

POLL = 0.2  # seconds between looks at whether to stop

Piece = tuple[Job, ...]
Record = Callable[[list[dict[str, Any]]], None]


def pieces(plan: Plan, jobs: Sequence[Job], workers: int) -> list[Piece]:
    """The jobs by program and budget, cut to be shared out.

    Under ``vmap`` a group stays one piece: how many are batched changes rounding. Under ``map``
    it does not, and members run one after another: small pieces cost nothing, keep every worker
    busy and let one compiled program serve all. Only where every piece compiles its own program,
    since its worlds are new, are pieces as large as they can be.
    """
    groups: dict[Any, list[Job]] = {}
    for job in jobs:
        settings = members.configure(plan.settings, job.fields)
        key = (members.program(settings), job.start, job.stop, len(job.seeds))
        groups.setdefault(key, []).append(job)
    made: list[Piece] = []
    for left in groups.values():
        size = min(plan.together, -(-len(left) // workers))
        size = len(left) if plan.settings.inside == "vmap" else size
        made += [tuple(left[i : i + size]) for i in range(0, len(left), size)]
    return made


class Here:
    """Carries out pieces in this process."""

    def __init__(self, plan: Plan, stopping: Callable[[], bool]):
        self.workers, self._lanes, self._stopping = 1, Lanes(plan), stopping

    def run(self, todo: Sequence[Piece], record: Record) -> None:
        """One piece after the other; raises Stopped when asked to stop."""
        for piece in todo:
            record(self._lanes.run(piece, self._stopping))

    def close(self) -> None:
        """Nothing to release."""


class Crew:
    """Carries out pieces in processes pinned to a core each."""

    def __init__(self, plan: Plan, workers: int, stopping: Callable[[], bool]):
        self.workers, self._stopping = workers, stopping
        self._words = plan.folder / "workers.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        available = cores()
        for i in range(workers):
            self._start(available[i % len(available)], pickling.dumps(plan))

    def run(self, todo: Sequence[Piece], record: Record) -> None:
        """Whoever is free takes the next piece; raises Stopped when asked to stop."""
        left, idle, busy = list(todo), list(self._connections), set[Connection]()
        while left or busy:
            while left and idle:
                connection = idle.pop(0)
                connection.send_bytes(pickling.dumps(left.pop(0)))
                busy.add(connection)
            if self._stopping():
                raise Stopped
            for ready in wait(list(busy), POLL):
                assert isinstance(ready, Connection)
                record(self._answer(ready))
                busy.remove(ready)
                idle.append(ready)

    def close(self) -> None:
        """End the processes; what they were at is done again on resuming."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        for connection in self._connections:
            connection.close()

    def _start(self, core: int, plan: bytes) -> None:
        ours, theirs = Pipe()
        with self._words.open("ab") as words:
            command = [sys.executable, "-m", "sterling.tuning.worker"]
            process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(core)],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        ours.send_bytes(plan)
        self._processes.append(process)
        self._connections.append(ours)

    def _answer(self, connection: Connection) -> list[dict[str, Any]]:
        try:
            kind, answer = cloudpickle.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise Mistake(
                f"a process of the study has died; its last words are in {self._words}; "
                "resume the study to try again"
            ) from error
        if kind == "done":
            return answer
        if kind == "mistake":
            raise Mistake(answer)
        with self._words.open("a") as words:
            words.write(answer)
        raise Mistake(f"a job has failed: {answer.strip().splitlines()[-1]} (see {self._words})")


def cores() -> list[int]:
    """The cores this process may use; on systems without affinity just their count."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def make(plan: Plan, workers: int, stopping: Callable[[], bool]) -> Here | Crew:
    """One worker is this process itself."""
    Path(plan.folder).mkdir(parents=True, exist_ok=True)
    return Here(plan, stopping) if workers == 1 else Crew(plan, workers, stopping)
