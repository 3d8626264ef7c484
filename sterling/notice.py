"""Lines for whoever started the program. That nobody reads them any more never ends it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

_silent = [False]  # whether lines on standard output are left out


def say(line: str) -> None:
    """A line on standard error."""
    _write(line, sys.stderr)


def tell(line: str) -> None:
    """A line on standard output."""
    if not _silent[-1]:
        _write(line, sys.stdout)


@contextlib.contextmanager
def untold() -> Iterator[None]:
    """While entered, nothing is told: what a part would say of itself is not true of the whole."""
    _silent.append(True)
    try:
        yield
    finally:
        _silent.pop()


def _write(line: str, stream: Any) -> None:
    if stream is None:
        return
    try:
        print(line, file=stream, flush=True)
    except (OSError, ValueError):  # a broken pipe, a full disk, a closed stream
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())  # else Python would fail of it again as it ends
            os.close(nowhere)
