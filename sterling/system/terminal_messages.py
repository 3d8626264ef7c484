"""Print lines to the terminal. A closed pipe, a full disk or a closed stream never ends the run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

_silent = [False]  # a stack; whether lines on standard output are suppressed


def print_notice(line: str) -> None:
    """Print a line to standard error."""
    _print_line(line, sys.stderr)


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
