"""Ctrl-C ends a command at any time: while it imports, traces, compiles or works.

Python answers the signal by raising KeyboardInterrupt between two of its own instructions. That
lets ``finally`` blocks run, but it is not enough: raised in a callback (such as JAX's at each
garbage collection) or in an import, it is printed and lost; during a compilation it waits for
minutes; and an interpreter that exits during a compilation may crash. Training has its own handler
because it has something to save (training/runtime/signals.py); it restores this one at its end.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn

EXIT_INTERRUPTED = 128 + signal.SIGINT  # exit code, as in shells
EXIT_RESUMABLE = 75  # EX_TEMPFAIL of sysexits.h: nothing is lost, run it again
DEBOUNCE_SECONDS = 0.5  # seconds: terminals and job schedulers often deliver a signal twice
GRACE_SECONDS = 5.0  # seconds that clean-up may take after the first Ctrl-C
RETRY_SECONDS = 0.05  # seconds after which a lost interrupt is raised again

_messages = ["stopped"]  # a stack; the last message is printed


@contextlib.contextmanager
def interrupt_message(words: str) -> Iterator[None]:
    """Context manager that sets the message to print on an interrupt."""
    _messages.append(words)
    try:
        yield
    except KeyboardInterrupt:
        _messages[:] = [words]  # keeps this message after the block has ended
        raise
    finally:
        if len(_messages) > 1:
            _messages.pop()


class CtrlCHandler:
    """Context manager in which Ctrl-C raises KeyboardInterrupt, and raises it again if it was lost.

    A thread ends the process if :meth:`leave` is not called within ``GRACE_SECONDS``, and at a
    second Ctrl-C. ``asked`` says whether there was a first Ctrl-C.

    Does nothing outside the main thread, or if SIGINT is ignored (``nohup``, a shell's ``&``) or
    has another handler.
    """

    def __init__(self) -> None:
        self.asked = False
        self._lost = False
        self._again = False  # whether a lost interrupt is to be raised again
        self._own = 0  # signals sent by this object, not by the user
        self._active = False

    def __enter__(self) -> CtrlCHandler:
        self._main = threading.main_thread().ident or 0
        here = threading.get_ident() == self._main
        if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return self
        self._reader, self._writer = socket.socketpair()  # Windows cannot wait for a pipe
        self._writer.setblocking(False)
        self._old_wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._old_hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        signal.signal(signal.SIGINT, self._raise)
        self._thread = threading.Thread(target=self._watch, name="leaving", daemon=True)
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
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = self._old_hook
        signal.set_wakeup_fd(self._old_wakeup)
        self._writer.close()  # the thread reads the end of the stream and returns
        self._thread.join()
        self._reader.close()

    def leave(self) -> NoReturn:
        """End the process without Python's own shutdown, once clean-up is done."""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        _exit_now()

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.asked and not self._again:  # a second one would break the clean-up of the first
            return
        self.asked, self._again = True, False
        if _is_importing(frame):  # NumPy, for instance, would print and swallow the exception
            self._lost = True
            return
        raise KeyboardInterrupt

    def _unraisable(self, lost: Any) -> None:
        """Handle an exception that was raised where no code can catch it."""
        if isinstance(lost.exc_value, KeyboardInterrupt):
            self._lost = True
        elif isinstance(lost.exc_value, SystemExit) and lost.exc_value.code == EXIT_RESUMABLE:
            os._exit(EXIT_RESUMABLE)  # raised by training's handler, which has printed its message
        else:
            self._old_hook(lost)

    def _interrupt_again(self) -> None:
        self._again = True
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(self._main, signal.SIGINT)  # also wakes the main thread
        else:  # Windows
            _thread.interrupt_main(signal.SIGINT)

    def _watch(self) -> None:
        """Read the number of every signal as it arrives, and ensure that the first takes effect."""
        first: float | None = None
        while True:
            ready, _, _ = select.select([self._reader], [], [], RETRY_SECONDS if first else None)
            now = time.monotonic()
            if ready:
                number = self._reader.recv(1)
                if not number:
                    return
                if number[0] != signal.SIGINT:
                    continue
                if self._own:
                    self._own -= 1
                    continue
                first = first or now
            if first and (now - first > (DEBOUNCE_SECONDS if ready else GRACE_SECONDS)):
                _exit_now()
            if self._lost and not ready:
                self._lost, self._own = False, self._own + 1
                self._interrupt_again()


def _is_importing(frame: FrameType | None) -> bool:
    """Whether the main thread is importing a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _exit_now() -> NoReturn:
    """Print the message and end the process at once, without Python's streams: the main thread
    may hold their locks."""
    with contextlib.suppress(OSError):
        os.write(2, f"{_messages[-1]}\n".encode())
    os._exit(EXIT_INTERRUPTED)
