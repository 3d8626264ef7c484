"""Ctrl-C ends a command, wherever it is: while it imports, traces, compiles or works.

Python answers the signal by raising KeyboardInterrupt between two of its own instructions. That is
right for what has to be tidied up, and not enough: raised in a callback (JAX's at each collection
of garbage) or in an import it is printed and forgotten; while a program is compiled it waits for
minutes; and an interpreter that ends beside a compilation may crash. Training answers for itself,
since it has something to save (training/guard.py), and puts this back when it leaves.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn

INTERRUPTED = 128 + signal.SIGINT  # exit code, as shells have it
EXIT_RESUMABLE = 75  # EX_TEMPFAIL of sysexits.h: nothing is lost, run it again
DEBOUNCE = 0.5  # seconds: terminals and job schedulers often deliver a signal twice
GRACE = 5.0  # seconds for tidying up
RETRY = 0.05  # seconds after which an interrupt that was lost is raised again

_words = ["stopped"]  # the last of them is what is said


@contextlib.contextmanager
def saying(words: str) -> Iterator[None]:
    """While entered, that is what is said of an interrupt."""
    _words.append(words)
    try:
        yield
    except KeyboardInterrupt:
        _words[:] = [words]  # still true once this has been left
        raise
    finally:
        if len(_words) > 1:
            _words.pop()


class Leaving:
    """While entered, Ctrl-C raises KeyboardInterrupt, again where that was lost, and whoever does
    not come to :meth:`leave` within ``GRACE`` seconds is ended by a thread; so is everybody at a
    second Ctrl-C. ``asked`` says whether there was a first.

    Does nothing outside the main thread, and where SIGINT is ignored (``nohup``, a shell's ``&``)
    or somebody else's to answer.
    """

    def __init__(self) -> None:
        self.asked = False
        self._lost = False
        self._own = 0  # signals that are this object's, not the user's
        self._active = False

    def __enter__(self) -> Leaving:
        self._main = threading.main_thread().ident or 0
        here = threading.get_ident() == self._main
        if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return self
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._old_wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
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
        os.close(self._writer)  # the thread reads the end of the stream and returns
        self._thread.join()
        os.close(self._reader)

    def leave(self) -> NoReturn:
        """End the process, tidied up, without what Python does at its end."""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        _end()

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if _importing(frame):  # NumPy, say, would print what interrupts its import
            self._lost = True
            return
        raise KeyboardInterrupt

    def _unraisable(self, lost: Any) -> None:
        """What was raised where nobody can catch it."""
        if isinstance(lost.exc_value, KeyboardInterrupt):
            self._lost = True
        elif isinstance(lost.exc_value, SystemExit) and lost.exc_value.code == EXIT_RESUMABLE:
            os._exit(EXIT_RESUMABLE)  # training's own answer; its words have been said
        else:
            self._old_hook(lost)

    def _watch(self) -> None:
        """Read the number of every signal as it arrives, and see to it that the first is obeyed."""
        first: float | None = None
        while True:
            ready, _, _ = select.select([self._reader], [], [], RETRY if first else None)
            now = time.monotonic()
            if ready:
                number = os.read(self._reader, 1)
                if not number:
                    return
                if number[0] != signal.SIGINT:
                    continue
                if self._own:
                    self._own -= 1
                    continue
                first = first or now
            if first and (now - first > (DEBOUNCE if ready else GRACE)):
                _end()
            if self._lost and not ready:
                self._lost, self._own = False, self._own + 1
                signal.pthread_kill(self._main, signal.SIGINT)  # which wakes it as well


def _importing(frame: FrameType | None) -> bool:
    """Whether the main thread is importing something."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end() -> NoReturn:
    """At once, and past Python's own streams, which the main thread may hold."""
    with contextlib.suppress(OSError):
        os.write(2, f"{_words[-1]}\n".encode())
    os._exit(INTERRUPTED)
