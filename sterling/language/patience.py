"""Time limits for what goes on in this process, and who is excepted from them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Alarm(BaseException):
    """Time is over. Not an Exception: what catches those (a tool's faults, say) lets it pass."""


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what takes longer, again and again where it goes on. Only a process's
    main thread can be interrupted; in others nothing is limited."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    except Alarm:
        raise TimeoutError(f"took longer than {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def unhurried() -> Iterator[None]:
    """Stop the clock of :func:`patience` around what has a time limit of its own: cut short by
    another one it could not say which of its answers belongs to which question."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left = signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
