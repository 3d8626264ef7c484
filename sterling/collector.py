"""Python's garbage collector, out of the way while nothing is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resting() -> Iterator[None]:
    """While entered, nothing is collected.

    Importing JAX and tracing a program make a million objects that stay; looking through them over
    and over takes a tenth of the time in which a small run is done.
    """
    worked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if worked:
            gc.enable()
