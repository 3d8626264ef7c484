"""Calls of other code that may take long, in threads beside the one that plays scenes.

A call that exceeds its time fails, and its thread is left to itself: the others go on. Python code
in it is interrupted as soon as it can be; what sleeps or waits for the network ends later, unheard.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from sterling.language.time_limits import TimeIsUp, set_deadline

CALLS_AT_ONCE = 32
LOOK = 1.0  # seconds, at most, between two looks for late calls: some begin in between


class CallPool:
    """Runs up to ``size`` functions at once. Its threads begin when they are needed, and do not
    keep Python from ending."""

    def __init__(self, size: int = CALLS_AT_ONCE):
        self.size = size
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open = 0  # calls that have not ended
        self._threads = 0
        self._limited: set[_Call] = set()  # those of them that have a limit

    def run(self, function: Callable[[], Any], seconds: float | None = None) -> Future[Any]:
        """Begin a call; ``seconds``: how long it may run (see :meth:`fail_late_calls`)."""
        call = _Call(function, seconds)
        self._queue.put(call)
        with self._lock:
            self._open += 1
            if seconds is not None:
                self._limited.add(call)
        self._begin_thread()
        return call.future

    def fail_late_calls(self) -> float | None:
        """Fail the calls that have run too long, with a TimeoutError; return in how many seconds
        to look again (None: no call has a limit)."""
        with self._lock:
            limited = list(self._limited)
        now = time.monotonic()
        for call in (each for each in limited if each.end <= now):
            if call.finish(error=TimeoutError(f"took longer than {call.seconds:g} s")):
                _interrupt(call.thread)
                self._leave(call, thread=True)
                self._begin_thread()
        left = [each.end - now for each in limited if each.end > now]
        return min(*left, LOOK) if left else None

    def close(self) -> None:
        """End the threads, as soon as their calls have ended."""
        for _ in range(self._threads):
            self._queue.put(None)

    def _begin_thread(self) -> None:
        """Begin a thread, if there are fewer than calls and room for one more."""
        with self._lock:
            begins = self._threads < min(self._open, self.size)
            self._threads += begins
        if begins:
            threading.Thread(target=self._work, daemon=True).start()

    def _leave(self, call: _Call, *, thread: bool) -> None:
        with self._lock:
            self._open -= 1
            self._threads -= thread
            self._limited.discard(call)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                if not self._run(call):
                    return  # another thread took this one's place
            except TimeIsUp:  # it came just after the call had ended
                return

    def _run(self, call: _Call) -> bool:
        """Run a call; return whether it ended in time."""
        call.begin()
        try:
            in_time = call.finish(result=call.function())
        except BaseException as error:
            in_time = call.finish(error=error)
        if in_time:
            self._leave(call, thread=False)
        return in_time


class _Call:
    """A function, the time it has, and its result to come."""

    def __init__(self, function: Callable[[], Any], seconds: float | None):
        self.function, self.seconds = function, seconds
        self.future: Future[Any] = Future()
        self.end, self.thread = float("inf"), 0

    def begin(self) -> None:
        """Note when it has to have ended, and where it runs."""
        self.thread = threading.get_ident()
        set_deadline(self)
        if self.seconds is not None:
            self.end = time.monotonic() + self.seconds

    def finish(self, result: Any = None, error: BaseException | None = None) -> bool:
        """Deliver the result, or the error; return False if the call had failed before."""
        with contextlib.suppress(InvalidStateError):
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)
            return True
        return False


def _interrupt(thread: int) -> None:
    """Raise TimeIsUp in a thread, at its next step of Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeIsUp))
