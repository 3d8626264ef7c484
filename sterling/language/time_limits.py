"""Time limits for code in this process, and exceptions from them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable


class TimeIsUp(BaseException):
    """The time limit is over. Not an Exception, so that code that catches those (the errors of a
    tool, say) does not catch this."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in code that takes longer, again and again if it goes on. Only a process's
    main thread can be interrupted; in other threads nothing is limited."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    except TimeIsUp:
        raise TimeoutError(f"took longer than {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@runtime_checkable
class Deadline(Protocol):
    """When code in a thread that is not the main one has to have ended."""

    end: float  # of the monotonic clock


_of_thread = threading.local()  # its ``deadline``, if it has one


def set_deadline(deadline: Deadline) -> None:
    """Say which deadline holds in this thread from now on, for the functions below."""
    _of_thread.deadline = deadline


def remaining_time() -> tuple[float, float]:
    """Return what is left of the time limit around this code, for :func:`pause_time_limit`."""
    if threading.current_thread() is threading.main_thread():
        return signal.getitimer(signal.ITIMER_REAL)
    deadline: Deadline | None = getattr(_of_thread, "deadline", None)
    return (deadline.end - time.monotonic() if deadline else 0.0), 0.0


@contextmanager
def pause_time_limit(left: tuple[float, float] | None = None) -> Iterator[None]:
    """Stop the clock of :func:`time_limit` around code that has a time limit of its own. If that
    were interrupted, it could not tell which of its answers belongs to which question. The clock
    goes on with the time that was left before, or with ``left`` (:func:`remaining_time`)."""
    if threading.current_thread() is not threading.main_thread():
        with _pause_deadline(left or remaining_time()):
            yield
        return
    before = signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *(left or before))


@contextmanager
def _pause_deadline(left: tuple[float, float]) -> Iterator[None]:
    """Let this thread's deadline, if it has one, not pass, and be so far away afterwards."""
    deadline: Deadline | None = getattr(_of_thread, "deadline", None)
    if deadline is None:
        yield
        return
    deadline.end = float("inf")
    try:
        yield
    finally:
        deadline.end = time.monotonic() + left[0]
