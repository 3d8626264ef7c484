"""Run jobs in this process, or in one process per core.

A wave of jobs is split into pieces, each one program with one budget; a free worker takes the next
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

from sterling.system import pickling
from sterling.system.terminal_messages import print_notice
from sterling.system.windows_limits import refuse_on_windows
from sterling.tuning.jobs import member_axis
from sterling.tuning.jobs.parallel_trials import JobRunner, StudyPlan, StudyStopped
from sterling.tuning.searchers.searchers import Job
from sterling.types import Mistake

POLL_SECONDS = 0.2  # seconds between checks for a stop request

JobPiece = tuple[Job, ...]
RecordLines = Callable[[list[dict[str, Any]]], None]


def split_into_pieces(plan: StudyPlan, jobs: Sequence[Job], workers: int) -> list[JobPiece]:
    """Group jobs by program and budget, and split the groups into pieces for the workers.

    Under ``vmap`` a group stays one piece: the batch size changes rounding. Under ``map`` it does
    not, and members run one after another: small pieces cost nothing, keep every worker busy and
    let one compiled program serve all. Only where every piece compiles its own program, since its
    environments are new, are pieces as large as possible.
    """
    groups: dict[Any, list[Job]] = {}
    for job in jobs:
        settings = member_axis.with_config_fields(plan.settings, job.fields)
        key = (member_axis.program_key(settings), job.start, job.stop, len(job.seeds))
        groups.setdefault(key, []).append(job)
    made: list[JobPiece] = []
    for left in groups.values():
        size = min(plan.together, -(-len(left) // workers))
        size = len(left) if plan.settings.program_strategy == "vmap" else size
        made += [tuple(left[i : i + size]) for i in range(0, len(left), size)]
    return made


class InProcessWorker:
    """Runs pieces in this process."""

    def __init__(self, plan: StudyPlan, stopping: Callable[[], bool]):
        self.workers, self._lanes, self._stopping = 1, JobRunner(plan), stopping

    def run(self, todo: Sequence[JobPiece], record: RecordLines) -> None:
        """Run the pieces one after the other; raises StudyStopped when asked to stop."""
        for piece in todo:
            record(self._lanes.run(piece, self._stopping))

    def close(self) -> None:
        """No-op: in-process jobs hold no resources."""


class WorkerPool:
    """Runs pieces in processes that are pinned to a core each."""

    def __init__(self, plan: StudyPlan, workers: int, stopping: Callable[[], bool]):
        refuse_on_windows("Studies in several processes", "Use workers=1.")
        self.workers, self._stopping = workers, stopping
        self._words = plan.folder / "workers.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        available = usable_cores()
        for i in range(workers):
            self._start(available[i % len(available)], pickling.dumps(plan))

    def run(self, todo: Sequence[JobPiece], record: RecordLines) -> None:
        """Give each free process the next piece; raises StudyStopped when asked to stop."""
        left, idle, busy = list(todo), list(self._connections), set[Connection]()
        while left or busy:
            while left and idle:
                connection = idle.pop(0)
                connection.send_bytes(pickling.dumps(left.pop(0)))
                busy.add(connection)
            if self._stopping():
                raise StudyStopped
            for ready in wait(list(busy), POLL_SECONDS):
                assert isinstance(ready, Connection)
                record(self._answer(ready))
                busy.remove(ready)
                idle.append(ready)

    def close(self) -> None:
        """End the processes; unfinished pieces are run again when the study is resumed."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        for connection in self._connections:
            connection.close()

    def _start(self, core: int, plan: bytes) -> None:
        ours, theirs = Pipe()
        with self._words.open("ab") as words:
            command = [sys.executable, "-m", "sterling.tuning.jobs.job_worker"]
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
            kind, answer, notices = cloudpickle.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise Mistake(
                f"a worker process of the study has died; its output is in {self._words}; "
                "resume the study to try again"
            ) from error
        for line in notices:
            print_notice(line)
        if kind == "done":
            return answer
        if kind == "mistake":
            raise Mistake(answer)
        with self._words.open("a") as words:
            words.write(answer)
        raise Mistake(f"a job has failed: {answer.strip().splitlines()[-1]} (see {self._words})")


def usable_cores() -> list[int]:
    """Return the cores this process may use; on systems without affinity, all of them."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def start_workers(
    plan: StudyPlan, workers: int, stopping: Callable[[], bool]
) -> InProcessWorker | WorkerPool:
    """Return this process itself for one worker, else a pool of processes."""
    Path(plan.folder).mkdir(parents=True, exist_ok=True)
    return InProcessWorker(plan, stopping) if workers == 1 else WorkerPool(plan, workers, stopping)
