"""Handle signals during a run: after SIGTERM, Ctrl-C or a closed terminal it saves and exits.

with Interrupt() as interrupt:
    while ...:
        run = ...
        if interrupt.requested:
            save; print how to resume; sys.exit(EXIT_RESUMABLE)
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from sterling.system import interrupts
from sterling.system.terminal_messages import print_progress

EXIT_RESUMABLE = interrupts.EXIT_RESUMABLE
NOTHING_KEPT = "stopped; nothing was saved, because there is no run folder (out=...)"
DEBOUNCE_SECONDS = 0.5
HANGUP = tuple(
    getattr(signal, name) for name in ("SIGHUP",) if hasattr(signal, name)
)  # not Windows


class Interrupt:
    """Context manager in which SIGTERM, SIGINT and SIGHUP set ``requested``; a second SIGTERM or
    SIGINT ends the process at once.

    Python runs signal handlers only between its own instructions, which a compiled program or a
    compilation can delay for minutes. So a thread waits for the second signal, and ends the process
    (status 128 + signal) whatever the main thread is doing. Signals within half a second of the
    first count as the same request: ``timeout``, terminals and job schedulers often send one twice.

    SIGHUP says that the terminal was closed. The kernel and the shell each send one, so a SIGHUP
    never counts as the second signal. If SIGHUP is ignored, as under ``nohup``, it stays ignored.

    At exit the handlers are restored; after a signal this waits until the half second is over.
    With ``leave``, for work of which nothing is saved, the first signal takes effect at once: it
    prints the text that ``leave`` returns, and raises SystemExit with code 75. Contexts can be
    nested; the outer one gets no signals meanwhile.

    Outside the main thread, where Python allows no handlers, it does nothing and ``requested``
    stays False.
    """

    signals = (signal.SIGTERM, signal.SIGINT, *HANGUP)

    def __init__(self, leave: Callable[[], str] | None = None) -> None:
        self.requested = False
        self._leave = leave
        self._first: float | None = None
        self._active = False

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._old_wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._old_hook, sys.unraisablehook = sys.unraisablehook, _exit_hook(sys.unraisablehook)
        heard = [each for each in self.signals if each not in HANGUP or not _is_ignored(each)]
        self._old = {each: signal.signal(each, self._request) for each in heard}
        self._thread = threading.Thread(target=self._watch, name="interrupt", daemon=True)
        self._thread.start()
        self._active = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._active:
            return
        self._active = False
        if self.requested:  # a repeated signal must not reach the old handlers
            first = self._first or time.monotonic()  # the thread may not have read it yet
            time.sleep(max(0.0, first + DEBOUNCE_SECONDS - time.monotonic()))
        for each, handler in self._old.items():
            signal.signal(each, handler)
        sys.unraisablehook = self._old_hook
        signal.set_wakeup_fd(self._old_wakeup)
        self._writer.close()  # the thread reads the end of the stream and returns
        self._thread.join()
        self._reader.close()

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        leave, self._leave = self._leave, None  # a repeated signal does not raise again
        if leave is not None:
            print_progress(leave())
            raise SystemExit(EXIT_RESUMABLE)

    def _watch(self) -> None:
        """Read the number of every signal as it arrives."""
        while numbers := self._reader.recv(1):
            if numbers[0] not in self.signals:
                continue
            self.requested = True
            if numbers[0] in HANGUP:
                continue  # never the second signal
            now = time.monotonic()
            if self._first is None:
                self._first = now
            elif now - self._first > DEBOUNCE_SECONDS:
                os._exit(128 + numbers[0])


def _exit_hook(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a hook for exceptions that no code can catch: it calls ``hook``, but ends the process
    for the SystemExit of ``Interrupt(leave)``. Raised in a callback, such as JAX's at each garbage
    collection, that exception would be printed and lost; its message has been printed already."""

    def answer(lost: Any) -> None:
        if isinstance(lost.exc_value, SystemExit) and lost.exc_value.code == EXIT_RESUMABLE:
            os._exit(EXIT_RESUMABLE)
        hook(lost)

    return answer


def _is_ignored(number: signal.Signals) -> bool:
    """Whether the process ignores a signal."""
    return signal.getsignal(number) == signal.SIG_IGN
