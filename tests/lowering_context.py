"""One MLIR context for many programs: to make one takes as long as to lower a small program.

JAX makes a context for every program that it lowers. Most programs of tests are single operations
on arrays of a new shape, of which one process lowers thousands. A program that is lowered while its
thread lowers another one has a context of its own: in the same one it would become a part of it.
"""

import threading
from collections.abc import Callable
from typing import Any

from jax._src.interpreters import mlir

MOST_PROGRAMS = 200  # a context: it keeps the constants of all of them


class _OfThread(threading.local):
    context: Any = None
    programs = 0


def share() -> None:
    """From here on the programs that a thread lowers share a context."""
    mlir.make_ir_context = shared(mlir.make_ir_context)


def shared(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that gives each thread the context that ``make`` made for it."""
    held = _OfThread()

    def context() -> Any:
        if lowers_another():
            return make()
        if held.context is None or held.programs == MOST_PROGRAMS:
            held.context, held.programs = make(), 0
        held.programs += 1
        return held.context

    return context


def lowers_another() -> bool:
    """Whether this thread is lowering a program now."""
    try:
        return mlir.ir.Context.current is not None
    except ValueError:  # there is none
        return False
