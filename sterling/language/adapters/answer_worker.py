"""A process that answers questions, so that a judge that hangs or dies can be replaced.

Verifiers that Sterling did not write may raise, loop forever, use up memory or print. They run in a
process of their own, which is asked over pipes in JSON lines. Python's own time limits use signals,
which only work in a main thread; this one works in any thread. It is not a sandbox: the code is the
user's or a package's, not a model's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from sterling.language.time_limits import pause_time_limit
from sterling.system.away_errors import is_away
from sterling.system.windows_limits import refuse_on_windows

START_SECONDS = 120.0  # that a worker may take to import what it needs
MAX_ANSWER_BYTES = 2**24  # of an answer
AWAY = "away"  # the kind of fault that asking again may mend
SETTINGS = {"PYTHONHASHSEED": "0", "JAX_PLATFORMS": "cpu"}  # leave the accelerator to the learner


class WorkerFault(Exception):
    """No answer: ``kind`` is "raised", "away", "hung" or "died"; ``detail`` says more."""

    def __init__(self, kind: str, detail: str):
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class Worker:
    """Answers questions in a process of its own, one at a time, each within a time limit.

    ``target`` is "module:function"; ``function(setup)`` runs once in the process and returns the
    function that answers questions. Questions, answers and ``setup`` are plain JSON. ``limit``:
    seconds that an answer may take, whatever :func:`~sterling.language.time_limits.time_limit` is
    around it. ``memory``: bytes that the process may use (None: no limit). The process begins with
    the first question. It begins again after it hung or died, or after an answer was not read (an
    interrupt). Its hashes are not randomised, so the order of a set of texts is always the same.
    Safe to share between threads.
    """

    def __init__(self, target: str, setup: Any, limit: float, memory: int | None = None):
        self.limit = limit
        self._first = {"target": target, "setup": setup, "memory": memory}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], Any] = _no_process
        self._asked = 0  # questions so far: an answer must carry its question's number

    def ask(self, question: Any, limit: float | None = None) -> Any:
        """Return the answer; raises :class:`WorkerFault` if there is none within ``limit``
        seconds."""
        seconds = self.limit if limit is None else limit
        with self._lock, pause_time_limit():
            try:
                if self._process is None:
                    self._begin()
                self._asked += 1
                return self._exchange([self._asked, seconds, question], seconds)
            except BaseException as error:
                if not isinstance(error, WorkerFault) or error.kind not in ("raised", AWAY):
                    self.close()  # else the next question would get this one's answer
                raise

    def close(self) -> None:
        """End the process and everything it started; another question begins a new one."""
        self._process = None
        self._end()

    def _begin(self) -> None:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        refuse_on_windows("Verifiers in processes of their own")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                f"from {__name__} import answer_requests; answer_requests()",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **SETTINGS, "PYTHONPATH": paths},
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _kill_group, self._process)  # also when Python exits
        self._asked = 0
        try:
            self._exchange(self._first, START_SECONDS)
        except WorkerFault:
            self.close()  # also if it only raised: without its setup it cannot answer
            raise

    def _exchange(self, question: Any, seconds: float) -> Any:
        """Send a question, whose number is ``_asked``, and return the process's answer."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        end = time.monotonic() + seconds
        self._write(process.stdin.fileno(), json.dumps(question).encode() + b"\n", end)
        try:
            answer = json.loads(self._line(process.stdout.fileno(), seconds, end))
            number = answer["number"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorkerFault("died", "its answer cannot be read") from error
        if number != self._asked:
            raise WorkerFault("died", "it answered another question")
        if "raised" in answer:
            raise WorkerFault(AWAY if answer["away"] else "raised", answer["raised"])
        return answer["answer"]

    def _write(self, pipe: int, left: bytes, end: float) -> None:
        """Write the question, within the time limit too: the process might not read it."""
        os.set_blocking(pipe, False)
        while left:
            if not select.select([], [pipe], [], max(0.0, end - time.monotonic()))[1]:
                raise WorkerFault("hung", "its process reads no questions")
            try:
                left = left[os.write(pipe, left) :]
            except BrokenPipeError as error:
                raise WorkerFault("died", "its process had ended") from error

    def _line(self, pipe: int, seconds: float, end: float) -> bytes:
        found = bytearray()
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            more = os.read(pipe, 65_536) if ready else b""
            if not ready:
                raise WorkerFault("hung", f"no answer after {seconds:g} seconds")
            if not more or len(found) > MAX_ANSWER_BYTES:
                raise WorkerFault("died", "its answer is too long" if more else "its process ended")
            found += more
        return bytes(found.partition(b"\n")[0])


def _no_process() -> None:
    """Do nothing: there is no process to end yet."""


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is gone already
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):  # what was left to write has no reader
            pipe.close()


def answer_requests() -> None:
    """Answer line by line until the pipe closes; runs in the worker's process."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # what the judge reads or prints must not mix with our lines
    os.dup2(2, 1)
    first = json.loads(requests.readline())
    if first["memory"] is not None:
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_AS, (first["memory"], first["memory"]))
    answer: Callable[[Any], Any] | None = None

    def begin(question: Any) -> None:
        nonlocal answer
        module, _, function = question["target"].partition(":")
        answer = getattr(importlib.import_module(module), function)(question["setup"])

    _send_answer(replies, 0, begin, first)
    assert answer is not None
    for line in requests:
        number, seconds, question = json.loads(line)
        # the process ends by itself if its parent is no longer there to end it
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds + 5.0)
        _send_answer(replies, number, answer, question)
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _send_answer(replies: Any, number: int, answer: Callable[[Any], Any], question: Any) -> None:
    try:
        reply = json.dumps({"number": number, "answer": answer(question)})
    except BaseException as error:  # a judge's sys.exit() is reported like any other fault
        said = f"{type(error).__name__}: {error}"[:500]
        reply = json.dumps({"number": number, "raised": said, "away": is_away(error)})
    replies.write(reply.encode() + b"\n")
    replies.flush()
