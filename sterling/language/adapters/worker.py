"""A process that answers questions, so that a judge who hangs or dies can be replaced.

Verifiers that Sterling did not write may raise, loop forever, use up memory or print. They run
in a process of their own, asked over pipes in JSON lines. Python's own time limits use signals,
which only work in a main thread; this one works in any thread. It is no sandbox: the code asked
is the user's or a package's, not a model's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from sterling.language.patience import unhurried

START = 120.0  # seconds that a worker may take to import what it needs
LONGEST = 2**24  # bytes of an answer
SETTINGS = {"PYTHONHASHSEED": "0", "JAX_PLATFORMS": "cpu"}  # the accelerator is the learner's


class Fault(Exception):
    """No answer: ``kind`` is "raised", "hung" or "died"; ``detail`` says more."""

    def __init__(self, kind: str, detail: str):
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class Worker:
    """Answers questions in a process of its own, one at a time, each within a time limit.

    ``target`` is "module:function"; ``function(setup)`` runs once in the process and returns what
    answers questions. Questions, answers and ``setup`` are plain JSON. ``limit``: seconds that
    an answer may take, whatever :func:`~sterling.language.patience.patience` is around it.
    ``memory``: bytes that the process may use (None: any). The process begins with the first
    question, and again after it hung or died or a question was left without its answer being
    read (an interrupt). It hashes without randomness, so the order of a set of texts is always the
    same. Safe to share between threads.
    """

    def __init__(self, target: str, setup: Any, limit: float, memory: int | None = None):
        self.limit = limit
        self._first = {"target": target, "setup": setup, "memory": memory}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], Any] = _nothing
        self._asked = 0  # questions so far: an answer bears its question's number

    def ask(self, question: Any, limit: float | None = None) -> Any:
        """The answer; raises :class:`Fault` where there is none within ``limit`` seconds."""
        seconds = self.limit if limit is None else limit
        with self._lock, unhurried():
            try:
                if self._process is None:
                    self._begin()
                self._asked += 1
                return self._told([self._asked, seconds, question], seconds)
            except BaseException as error:
                if not isinstance(error, Fault) or error.kind != "raised":
                    self.close()  # else the next question would be told this one's answer
                raise

    def close(self) -> None:
        """End the process and all that it started; another question begins a new one."""
        self._process = None
        self._end()

    def _begin(self) -> None:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **SETTINGS, "PYTHONPATH": paths},
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _kill, self._process)  # also when Python exits
        self._asked = 0
        try:
            self._told(self._first, START)
        except Fault:
            self.close()  # also where it only raised: without its beginning it answers nothing
            raise

    def _told(self, question: Any, seconds: float) -> Any:
        """What the process says to the question whose number is ``_asked``."""
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
            raise Fault("died", "its answer cannot be read") from error
        if number != self._asked:
            raise Fault("died", "it answered another question")
        if "raised" in answer:
            raise Fault("raised", answer["raised"])
        return answer["answer"]

    def _write(self, pipe: int, left: bytes, end: float) -> None:
        """Write the question; a process that does not read it is not waited for either."""
        os.set_blocking(pipe, False)
        while left:
            if not select.select([], [pipe], [], max(0.0, end - time.monotonic()))[1]:
                raise Fault("hung", "its process reads no questions")
            try:
                left = left[os.write(pipe, left) :]
            except BrokenPipeError as error:
                raise Fault("died", "its process had ended") from error

    def _line(self, pipe: int, seconds: float, end: float) -> bytes:
        found = bytearray()
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            more = os.read(pipe, 65_536) if ready else b""
            if not ready:
                raise Fault("hung", f"no answer after {seconds:g} seconds")
            if not more or len(found) > LONGEST:
                raise Fault("died", "its answer is too long" if more else "its process ended")
            found += more
        return bytes(found.partition(b"\n")[0])


def _nothing() -> None:
    """There is no process to end yet."""


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is gone already
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):  # what was left to write has no reader
            pipe.close()


def serve() -> None:
    """The process's side: answer line by line until the pipe closes."""
    asked, told = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # what the judge reads or prints must not be taken for our lines
    os.dup2(2, 1)
    first = json.loads(asked.readline())
    if first["memory"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (first["memory"], first["memory"]))
    answer: Callable[[Any], Any] | None = None

    def begin(question: Any) -> None:
        nonlocal answer
        module, _, function = question["target"].partition(":")
        answer = getattr(importlib.import_module(module), function)(question["setup"])

    _tell(told, 0, begin, first)
    assert answer is not None
    for line in asked:
        number, seconds, question = json.loads(line)
        # the process ends by itself where its parent is no longer there to end it
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds + 5.0)
        _tell(told, number, answer, question)
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _tell(told: Any, number: int, answer: Callable[[Any], Any], question: Any) -> None:
    try:
        said = json.dumps({"number": number, "answer": answer(question)})
    except BaseException as error:  # a judge's sys.exit() is a fault like any other: it is reported
        said = json.dumps({"number": number, "raised": f"{type(error).__name__}: {error}"[:500]})
    told.write(said.encode() + b"\n")
    told.flush()
