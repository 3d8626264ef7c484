"""Run the same function on many inputs, in one process or several, with results in order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def map_in_order(
    function: Callable[..., T], work: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[T]:
    """Yield ``function(*piece)`` for every piece, in order; processes import ``function`` by its
    name."""
    if workers == 1 or len(work) == 1:
        for piece in work:
            yield function(*piece)
        return
    context = multiprocessing.get_context("spawn")  # a process forked from JAX's threads may hang
    with context.Pool(min(workers, len(work))) as pool:
        yield from pool.imap(_UnpackedCall(function), work)


class _UnpackedCall:
    """Call ``function(*piece)`` where one argument, ``piece``, is passed."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, piece: tuple[Any, ...]) -> Any:
        return self._function(*piece)
