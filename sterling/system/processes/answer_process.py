"""The processes of a :class:`~sterling.language.adapters.answer_worker.Worker`, from their side.

The worker starts one process, the *server*. It imports what answers questions, once, and runs its
setup. For each question that is to be answered beside others it forks a *child*, which shares what
was imported, and answers one question after the other over a socket of its own. A server that may
have one process only, or whose setup left threads running (a forked process would lack them, and
could wait for them forever), answers by itself.

A child leads a process group, so it is killed with everything that it started. No process outlives
the worker: the server ends, and ends its children, when its control socket closes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sterling.system.away_errors import is_away

COMMAND = struct.Struct("!cI")  # of the worker to its server: one of these, and a child's number
OPEN, END = b"o", b"e"
TAKEN = b"t"  # the server's reply to OPEN: it has the child's socket
REAP_SECONDS = 0.02  # between looks for killed children that have not ended yet
SPARE_SECONDS = 5.0  # beyond a question's time limit, before its process ends by itself

Answer = Callable[[Any], Any]


def answer_requests() -> None:
    """Run the server, whose control socket is its standard input, until that socket closes."""
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # what a verifier reads or prints must not mix with our lines
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # line by line: a killed process would lose what it has not written
    random.seed(0)
    server: _Server | None = None

    def begin(first: Any) -> dict[str, bool]:
        nonlocal server
        answer = _run_setup(first)
        server = _Server(control, answer, first["processes"] > 1 and not threads_run())
        return {"forks": server.forks}

    with control.makefile("rb") as requests:
        line = requests.readline()
    if not line:
        return  # the worker is gone
    first = json.loads(line)
    with contextlib.suppress(OSError), control.makefile("wb") as replies:
        _send_answer(replies, 0, begin, first)
    if server is not None:
        server.run()


def _run_setup(first: dict[str, Any]) -> Answer:
    """Return the function that answers questions, and limit the memory of this process and of every
    one forked from it."""
    if first["memory"] is not None:
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_AS, (first["memory"], first["memory"]))
    module, _, function = first["target"].partition(":")
    made: Answer = getattr(importlib.import_module(module), function)(first["setup"])
    _seed_random_numbers(random.getrandbits(64))  # imports what each child would import again
    return made


def threads_run() -> bool:
    """Whether this process has other threads than the main one, also of compiled libraries where
    the system tells."""
    tasks = Path("/proc/self/task")
    return threading.active_count() > 1 or (tasks.is_dir() and len([*tasks.iterdir()]) > 1)


class _Server:
    """Forks the children that the worker asks for over ``control``, and ends them."""

    def __init__(self, control: socket.socket, answer: Answer, forks: bool):
        self.control, self.answer, self.forks = control, answer, forks
        self.children: dict[int, int] = {}  # the process of each number
        self.killed: set[int] = set()  # processes that are about to end

    def run(self) -> None:
        """Do as the worker says until it is gone, then end everything that was started."""
        gc.freeze()  # else a child's garbage collector would copy all that it shares
        while self._next_command():
            self._reap()
        for number in list(self.children):
            self._end_child(number)
        end = time.monotonic() + REAP_SECONDS * 100
        while self.killed and time.monotonic() < end:
            time.sleep(REAP_SECONDS / 10)
            self._reap()
        os.killpg(0, signal.SIGKILL)  # this process, and what its setup started

    def _next_command(self) -> bool:
        """Follow one command; False if there will be no more."""
        waiting = REAP_SECONDS if self.killed else None
        if not select.select([self.control], [], [], waiting)[0]:
            return True
        try:
            command, sockets, _, _ = socket.recv_fds(self.control, COMMAND.size, 1)
        except OSError:
            return False
        if len(command) < COMMAND.size:
            return False
        what, number = COMMAND.unpack(command)
        if what == END:
            self._end_child(number)
            return True
        with contextlib.suppress(OSError):
            self.control.sendall(TAKEN)
            for each in sockets:  # one, or none if this process may open no more files
                with socket.socket(fileno=each) as connection:
                    connection.set_inheritable(False)  # what a child starts must not keep it open
                    self._answer_over(connection, number)
        return True

    def _answer_over(self, connection: socket.socket, number: int) -> None:
        """Answer the questions of a socket, in a new child if this process may fork."""
        seed = random.getrandbits(64)  # which differs for each child, and is repeated
        if not self.forks:
            _seed_random_numbers(seed)
            answer_questions(connection, self.answer)
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a setup may have closed or replaced it
                stream.flush()  # else a child would write the same again
        process = os.fork()
        if process:
            self.children[number] = process
            return
        try:
            os.setpgid(0, 0)
            self.control.close()
            _seed_random_numbers(seed)
            answer_questions(connection, self.answer)
            os.killpg(0, signal.SIGKILL)  # this process, and what its verdicts started
        finally:
            os._exit(1)

    def _end_child(self, number: int) -> None:
        process = self.children.pop(number, None)
        if process is not None:
            _kill_group(process)
            self.killed.add(process)

    def _reap(self) -> None:
        """Forget the processes that have ended."""
        for number, process in list(self.children.items()):
            if _has_ended(process):
                del self.children[number]
        self.killed = {process for process in self.killed if not _has_ended(process)}


def _kill_group(process: int) -> None:
    """Kill a child and what it started; a child just forked may not lead its group yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
            kill(process, signal.SIGKILL)


def _has_ended(process: int) -> bool:
    """Whether a child has ended; then what it started is killed."""
    try:
        ended = os.waitpid(process, os.WNOHANG)[0] == process
    except ChildProcessError:  # a verifier's setup had ended children forgotten
        ended = True
    if ended:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)
    return ended


def _seed_random_numbers(seed: int) -> None:
    random.seed(seed)
    if "numpy" in sys.modules:  # which imports its random numbers when they are used first
        importlib.import_module("numpy.random").seed(seed % 2**32)


def answer_questions(connection: socket.socket, answer: Answer) -> None:
    """Answer line by line until the socket closes. The first line that is sent is this process's
    number."""
    with connection.makefile("rb") as requests, connection.makefile("wb") as replies:
        _send_answer(replies, 0, lambda _: os.getpid(), None)
        for line in requests:
            number, seconds, question = json.loads(line)
            # the process ends by itself if its parent is no longer there to end it
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds + SPARE_SECONDS)
            _send_answer(replies, number, answer, question)
            signal.setitimer(signal.ITIMER_REAL, 0.0)


def _send_answer(replies: Any, number: int, answer: Answer, question: Any) -> None:
    try:
        reply = json.dumps({"number": number, "answer": answer(question)})
    except BaseException as error:  # a judge's sys.exit() is reported like any other fault
        said = f"{type(error).__name__}: {error}"[:500]
        reply = json.dumps({"number": number, "raised": said, "away": is_away(error)})
    replies.write(reply.encode() + b"\n")
    replies.flush()
