"""Pause Python's garbage collector during imports and tracing, and at the end of the process."""

from __future__ import annotations

import atexit
import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Context manager that pauses garbage collection.

    Importing JAX and tracing a program make a million objects that stay alive; collecting again
    and again would take a tenth of the time of a small run.
    """
    worked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if worked:
            gc.enable()


@functools.cache  # once in a process
def freeze_at_exit() -> None:
    """Let the process end without a last collection: the interpreter would look for cycles among
    the million objects again and again, to free memory that the end of the process frees anyway.
    Exit handlers that were registered later run before."""
    atexit.register(gc.freeze)
