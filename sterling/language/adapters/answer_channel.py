"""A worker's connections to its processes (:mod:`~sterling.system.processes.answer_process`)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from typing import Any

from sterling.system.processes import answer_process
from sterling.system.processes.answer_process import COMMAND, END, OPEN, TAKEN
from sterling.system.windows_limits import refuse_on_windows

START_SECONDS = 120.0  # that a server may take to import what it needs, and a child to begin
FORK_SECONDS = 30.0  # that a server may take to notice that a child is wanted
END_SECONDS = 5.0  # that a server may take to end its children and itself
MAX_ANSWER_BYTES = 2**24  # of an answer
AWAY = "away"  # the kind of fault that asking again may mend
SETTINGS = {"PYTHONHASHSEED": "0", "JAX_PLATFORMS": "cpu"}  # leave the accelerator to the learner
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # NumPy's would run from its import on: no fork then


class WorkerFault(Exception):
    """No answer: ``kind`` is "raised", "away", "hung" or "died"; ``detail`` says more."""

    def __init__(self, kind: str, detail: str):
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class AnswerServer:
    """The process that forks those that answer; it begins, and runs the setup, when created."""

    def __init__(self, first: dict[str, Any]):
        refuse_on_windows("Verifiers in processes of their own")
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        settings = SETTINGS | (ONE_THREAD if first["processes"] > 1 else {})
        module = answer_process.__name__
        self._control, other = socket.socketpair()
        with other:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    f"from {module} import answer_requests; answer_requests()",
                ],
                stdin=other.fileno(),
                env={**os.environ, **settings, "PYTHONPATH": paths},
                start_new_session=True,
            )
        self.end = self._finalizer(0.0)
        self._opened = 0
        try:
            # whether it forks, or answers questions itself
            self.forks: bool = _exchange(self._control, first, 0, START_SECONDS)["forks"]
        except BaseException:
            self.end()  # also if it only raised: without its setup it cannot answer
            raise
        if self.forks:
            self.end.detach()
            self.end = self._finalizer(END_SECONDS)

    def _finalizer(self, patience: float) -> weakref.finalize[..., AnswerServer]:
        """Return the function that ends the process; it is called when Python exits, too."""
        return weakref.finalize(self, _end_process, self.process, self._control, patience)

    def open_channel(self) -> AnswerChannel | None:
        """Return a channel to a new process; None if the server is dead."""
        own, other = socket.socketpair()
        number = self._opened
        self._opened += 1  # also if it fails or is interrupted: no two children have one number
        command = COMMAND.pack(OPEN, number)
        with other:  # until it has been received: some systems lose a socket that is closed before
            try:
                socket.send_fds(self._control, [command], [other.fileno()])
                self._control.settimeout(FORK_SECONDS)
                alive = self._control.recv(1) == TAKEN
            except OSError:  # also of the time limit
                alive = False
        if not alive:
            own.close()
            return None
        return AnswerChannel(self, number, own)

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def end_channel(self, number: int, process: int) -> None:
        """Kill a channel's process and everything it started."""
        if not self.forks:
            self.end()
            return
        try:
            self._control.sendall(COMMAND.pack(END, number))
        except OSError:  # the server is dead: nobody else ends its children
            _kill_group(process)


def _end_process(process: subprocess.Popen[bytes], control: socket.socket, patience: float) -> None:
    """End the server, which may take ``patience`` seconds to end its children, and what its setup
    started."""
    with contextlib.suppress(OSError):
        control.shutdown(socket.SHUT_WR)
        control.settimeout(patience)
        while control.recv(4096):  # until its end closes, which is when it is dead
            pass
    control.close()
    _kill_group(process.pid)  # before it is waited for: then the number may be another's
    process.wait()


def _kill_group(process: int) -> None:
    if process:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it is gone already
            os.killpg(process, signal.SIGKILL)


class AnswerChannel:
    """A process that answers one question at a time, and the socket over which it is asked."""

    def __init__(self, server: AnswerServer, number: int, connection: socket.socket):
        self.busy = True
        self.process = 0  # its number, which it sends first
        self._server, self._number, self._connection = server, number, connection
        self._asked = 0  # questions so far: an answer must carry its question's number

    def has_begun(self) -> bool:
        """Wait for the process to begin; False if it ended at once (none could be forked)."""
        if not self.process:
            try:
                self.process = _read_answer(self._connection, 0, START_SECONDS)
            except WorkerFault as fault:
                if fault.kind != "died":
                    raise
        return bool(self.process)

    def ask(self, question: Any, seconds: float) -> Any:
        """Return the answer; raises :class:`WorkerFault`."""
        self._asked += 1
        return _exchange(self._connection, [self._asked, seconds, question], self._asked, seconds)

    def end(self) -> None:
        """Kill the process and everything it started."""
        self._server.end_channel(self._number, self.process)

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()


def _exchange(connection: socket.socket, question: Any, number: int, seconds: float) -> Any:
    """Send a question, and return its answer, which carries ``number``."""
    end = time.monotonic() + seconds
    try:  # within the time limit too: the process might not read it
        connection.settimeout(max(seconds, 1e-3))
        connection.sendall(json.dumps(question).encode() + b"\n")
    except TimeoutError as error:
        raise WorkerFault("hung", "its process reads no questions") from error
    except OSError as error:
        raise WorkerFault("died", "its process had ended") from error
    return _read_answer(connection, number, seconds, end)


def _read_answer(
    connection: socket.socket, number: int, seconds: float, end: float | None = None
) -> Any:
    try:
        answer = json.loads(_line(connection, seconds, end or time.monotonic() + seconds))
        found = answer["number"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WorkerFault("died", "its answer cannot be read") from error
    if found != number:
        raise WorkerFault("died", "it answered another question")
    if "raised" in answer:
        raise WorkerFault(AWAY if answer["away"] else "raised", answer["raised"])
    return answer["answer"]


def _line(connection: socket.socket, seconds: float, end: float) -> bytes:
    found = bytearray()
    while not found.endswith(b"\n"):
        try:
            connection.settimeout(max(end - time.monotonic(), 1e-3))
            more = connection.recv(65_536)
        except TimeoutError as error:
            raise WorkerFault("hung", f"no answer after {seconds:g} seconds") from error
        except ConnectionError:  # it ended before it had read the whole question
            more = b""
        if not more or len(found) > MAX_ANSWER_BYTES:
            raise WorkerFault("died", "its answer is too long" if more else "its process ended")
        found += more
    return bytes(found.partition(b"\n")[0])
