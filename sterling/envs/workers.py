"""Processes that step environments for the trainer, and what happens when they do not.

Each worker is a Python of its own, never a fork (JAX has threads), so a script needs no guard of
``__main__``, and a crash in C++ costs one process. Every wait has a deadline. Stopping a worker
stops what its environments have started, and none outlives the trainer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from sterling import disk, pickling
from sterling.envs.board import (
    BUILD,
    RESET,
    STEP,
    Asked,
    Board,
    NoneMade,
    Problem,
    Violation,
    board_of,
)
from sterling.envs.seat import Seat, Seats, explain, probe
from sterling.envs.serve import BOOT, GRACE, receive, send
from sterling.types import Mistake

START = 120.0  # seconds a process may take to start and to build an environment, beside `timeout`


class WorldFailed(RuntimeError):
    """An environment failed too often to go on: one line that names it, the reason, the remedy."""


class NoEnvironment(Mistake):
    """A factory returned something else than a Gymnasium environment."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something went wrong: whose episodes are lost, and whose doing it was."""

    lost: tuple[int, ...]
    blamed: tuple[int, ...]
    reason: str


class Crew(Protocol):
    """Whoever carries out the orders on the board."""

    problem: Problem
    board: Board

    def run(self) -> list[Fault]:
        """Carry out all orders."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class Inline:
    """The trainer's own process: cheapest, but a hang or a crash in C++ takes the trainer along."""

    def __init__(self, factory: Callable[[], Any], name: str, envs: int, asked: Asked = ((), ())):
        try:
            self.problem = probe(factory, *asked)
        except NoneMade as error:
            raise NoEnvironment(f"environment {name}: {error}") from error
        except Violation as error:
            raise Mistake(f"environment {name}: {error}") from error
        except Exception as error:
            raise WorldFailed(_unbuilt(name, explain(error))) from error
        self.board = board_of(self.problem, envs, 1)
        seats = [Seat(factory, self.problem, self.board, index) for index in range(envs)]
        self._seats = Seats(seats, self.board, 0)

    def run(self) -> list[Fault]:
        """Carry out all orders."""
        failures = self._seats.obey().items()
        return [Fault((index,), (index,), reason) for index, reason in failures]

    def close(self) -> None:
        """Close every environment."""
        self._seats.close()


class Processes:
    """``count`` worker processes, each stepping its share of ``envs`` environments in turn.

    ``timeout`` is in seconds and holds for one reset or step of one environment; a hang is noticed
    after one to two timeouts. A worker that died or hung is started again by the next round of
    orders, all of which must then be BUILD.
    """

    def __init__(
        self, factory: Callable[[], Any], name: str, envs: int, count: int, *, timeout: float,
        asked: Asked = ((), ()),
    ):  # fmt: skip
        if os.name == "nt":
            raise Mistake("worker processes need Linux or macOS; use workers=0")
        self._name, self._timeout = name, timeout
        self._factory, self._memory = _pickled(factory, name), disk.anonymous_file()
        self._shares = [share.tolist() for share in np.array_split(np.arange(envs), count)]
        self._processes: list[Process] = []
        # also called at exit; the list, unlike `self`, may be referred to
        self._stop = weakref.finalize(self, _stop, self._processes, self._memory, os.getpid())
        try:
            for _ in self._shares:
                self._processes.append(Process(self._memory))
            self.problem = self._probe(asked)
            self.board = board_of(self.problem, envs, count, self._memory)
            for worker in range(count):
                self._engage(worker)
        except BaseException:
            self._stop()
            raise

    def run(self) -> list[Fault]:
        """Carry out all orders, waiting no longer than the timeout for each."""
        if not self._stop.alive:
            raise Mistake(f"the world {self._name} is closed; make a new one")
        faults, called = [], []
        try:
            for worker, share in enumerate(self._shares):
                orders = self.board["order"][share]
                interrupted = not self._processes[worker].running
                if interrupted and np.isin(orders, (STEP, RESET)).any():
                    faults.append(Fault(tuple(share), (), "its process was interrupted"))
                elif orders.any():
                    called.append((worker, int(self.board["ticks"][worker])))
                    self._call(worker)
            start = time.monotonic()
            for worker, ticks in called:
                faults += self._answer(worker, ticks, start)
        except BaseException:  # an interrupt: answers still on their way must not be mistaken
            for worker, _ in called:
                self._end(worker)
            raise
        return faults

    def close(self) -> None:
        """Close every environment and end every process."""
        self._stop()

    def _probe(self, asked: Asked) -> Problem:
        """What the environment is; found out by the first worker."""
        first = self._processes[0]
        try:
            first.tell(self._factory)
            first.tell(("probe", *asked))
            said, answer = receive(first.line, time.monotonic() + START + self._timeout)
        except TimeoutError:
            said, answer = "failed", f"no answer within {START + self._timeout:g} s"
        except (EOFError, OSError):
            said, answer = "failed", first.obituary()
        if said in ("mistake", "none"):
            refused = NoEnvironment if said == "none" else Mistake
            raise refused(f"environment {self._name}: {answer}")
        if said == "failed":
            raise WorldFailed(_unbuilt(self._name, answer))
        return Problem(*answer)

    def _engage(self, worker: int) -> None:
        """Give a process its share of the board."""
        process, envs = self._processes[worker], len(self.board["order"])
        if not process.hired:
            process.tell(self._factory)
        share = self._shares[worker]
        process.tell((tuple(self.problem), envs, len(self._shares), worker, share))

    def _call(self, worker: int) -> None:
        """Have a worker carry out its orders; start it anew where it has ended."""
        if not self._processes[worker].running:
            self._processes[worker] = Process(self._memory)
            self._engage(worker)
        self._processes[worker].tell("go")

    def _answer(self, worker: int, ticks: int, start: float) -> list[Fault]:
        """Wait for one worker; ``ticks`` is where it stood at ``start``."""
        board, share = self.board, self._shares[worker]
        limit = self._timeout + START * bool((board["order"][share] == BUILD).any())
        deadline = start + limit
        while True:
            try:
                answer = receive(self._processes[worker].line, deadline)
                break
            except TimeoutError:
                if board["ticks"][worker] == ticks:
                    return [self._lose(worker, f"no answer within {limit:g} s")]
                ticks, deadline = int(board["ticks"][worker]), time.monotonic() + limit
            except (EOFError, OSError):
                return [self._lose(worker, self._processes[worker].obituary())]
        if isinstance(answer, tuple):
            raise WorldFailed(_unbuilt(self._name, answer[1]))
        return [Fault((index,), (index,), reason) for index, reason in answer.items()]

    def _lose(self, worker: int, reason: str) -> Fault:
        """A worker is gone or must go: all its episodes are lost."""
        share, busy = tuple(self._shares[worker]), int(self.board["current"][worker])
        self._end(worker)
        return Fault(share, (busy,) if busy >= 0 else share, reason)

    def _end(self, worker: int) -> None:
        self._processes[worker].kill()
        self.board["current"][worker] = -1


class Process:
    """One worker process; ``line`` is the socket to it, ``hired`` says that it has been told of
    the factory, ``running`` that nobody has ended it."""

    def __init__(self, memory: int):
        self.hired, self.running = False, True
        self.line, theirs = socket.socketpair()
        folder = os.path.dirname(os.path.abspath(__file__))
        paths = json.dumps([[str(path) for path in sys.path], folder])
        single = {"OMP_NUM_THREADS": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", BOOT, paths, str(theirs.fileno()), str(memory)],
                stdin=subprocess.PIPE,  # held open as long as we live
                pass_fds=(theirs.fileno(), memory),
                start_new_session=True,
                env={**single, **os.environ},
            )

    def tell(self, message: Any) -> None:
        """Send a message, the pickled factory first. If nobody hears it, no answer will come."""
        self.hired = True
        self.line.settimeout(START)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            send(self.line, message)

    def obituary(self) -> str:
        """What the process died of."""
        try:
            code = self._popen.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "its process stopped answering"
        if code >= 0:
            return f"its process exited with code {code}"
        name = signal.Signals(-code).name
        return f"its process died of {name}" + " (out of memory?)" * (name == "SIGKILL")

    def finish(self, deadline: float) -> None:
        """End it kindly until ``deadline``; the line must have been closed before."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(max(deadline - time.monotonic(), 0.0))
        self.kill()

    def kill(self) -> None:
        """End it and everything it has started."""
        if not self.running:
            return
        self.running = False
        # gone already; of a group of zombies macOS says that it is not permitted
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.communicate()  # waits, and closes its standard input
        self.line.close()


def _stop(processes: list[Process], memory: int, owner: int) -> None:
    """End all workers; nothing where this is a forked child of their owner."""
    if os.getpid() != owner:
        return
    for process in processes:
        process.line.close()
    deadline = time.monotonic() + GRACE
    for process in processes:
        process.finish(deadline)
    os.close(memory)


def _pickled(factory: Callable[[], Any], name: str) -> bytes:
    try:
        return pickling.dumps(factory)
    except Exception as error:
        why = f"the factory cannot be sent to a worker ({explain(error)})"
        remedy = "build everything inside the factory, or use workers=0"
        raise Mistake(f"environment {name}: {why}; {remedy}") from error


def _unbuilt(name: str, why: str) -> str:
    return f"environment {name} cannot be built, reset and stepped once: {why}; try it by hand"
