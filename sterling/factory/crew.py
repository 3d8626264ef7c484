"""The same work in one process or in several, answered in order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def each(function: Callable[..., T], work: Sequence[tuple[Any, ...]], workers: int) -> Iterator[T]:
    """``function(*piece)`` for every piece, in order; ``function`` is found by its name."""
    if workers == 1 or len(work) == 1:
        for piece in work:
            yield function(*piece)
        return
    context = multiprocessing.get_context("spawn")  # a fork of JAX's threads may hang
    with context.Pool(min(workers, len(work))) as pool:
        yield from pool.imap(_Called(function), work)


class _Called:
    """``function(piece)`` as ``function(*piece)``."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, piece: tuple[Any, ...]) -> Any:
        return self._function(*piece)
