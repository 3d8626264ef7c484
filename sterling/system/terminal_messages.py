"""Print lines to the terminal. A closed pipe, a full disk or a closed stream never ends the run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from sterling.system.mistake import Mistake

_silent = [False]  # a stack; whether lines on standard output are suppressed

_waiting: list[list[Callable[[], None]] | None] = [None]  # a stack; what waits for checks, if any
_readers: list[Callable[[str], None]] = []  # a stack; the last one gets notices, if there is one


def print_notice(line: str) -> None:
    """Print a line to standard error: at once, or where a run is checked once it has passed."""
    when_checked(lambda: _give_notice(line))


def _give_notice(line: str) -> None:
    if _readers:
        _readers[-1](line)
    else:
        _print_line(line, sys.stderr)


@contextlib.contextmanager
def notices_given_to(reader: Callable[[str], None]) -> Iterator[None]:
    """Context manager in which notices are given to ``reader`` and not printed."""
    _readers.append(reader)
    try:
        yield
    finally:
        _readers.pop()


@contextlib.contextmanager
def each_notice_once() -> Iterator[None]:
    """Context manager in which every distinct notice is given once, at its first time."""
    given: set[str] = set()
    reader = _readers[-1] if _readers else lambda line: _print_line(line, sys.stderr)

    def give_new(line: str) -> None:
        if line not in given:
            given.add(line)
            reader(line)

    with notices_given_to(give_new):
        yield


def when_checked(act: Callable[[], None]) -> None:
    """Do this once the checks around it have passed (see :func:`checked_first`), or at once."""
    waiting = _waiting[-1]
    if waiting is None:
        act()
    else:
        waiting.append(act)


@contextlib.contextmanager
def checked_first() -> Iterator[None]:
    """Context manager in which notices wait for :func:`checks_passed` or the end, and each is given
    once: a run has worlds for training and for evaluation. A Mistake drops them: what is refused
    gets one line, not first what a run would have had."""
    with each_notice_once():
        _waiting.append([])
        try:
            yield
        except Mistake:
            _waiting[-1] = None
            raise
        finally:
            checks_passed()
            _waiting.pop()


def checks_passed() -> None:
    """Print the notices that wait; later ones are printed at once."""
    waiting, _waiting[-1] = _waiting[-1], None
    for act in waiting or ():
        act()


def print_progress(line: str) -> None:
    """Print a line to standard output, unless silenced."""
    if not _silent[-1]:
        _print_line(line, sys.stdout)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Context manager that silences progress lines (a worker's numbers are not the run's)."""
    _silent.append(True)
    try:
        yield
    finally:
        _silent.pop()


def _print_line(line: str, stream: Any) -> None:
    if stream is None:
        return
    try:
        print(line, file=stream, flush=True)
    except (OSError, ValueError):  # a broken pipe, a full disk, a closed stream
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())  # otherwise Python would fail again when it exits
            os.close(nowhere)
