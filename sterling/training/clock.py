"""What a run's own work takes, and how much of that is compiling."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import jax.monitoring

STAGES = "/jax/core/compile/"  # what JAX calls tracing, lowering, and compiling or fetching


class Clock:
    """``seconds`` of a run's work, over all its processes, and ``compile_seconds`` among them."""

    def __init__(self, meta: dict[str, Any]):
        """At nothing, or where :meth:`to_json` left it."""
        self.seconds: float = meta.get("seconds", 0.0)
        self.compile_seconds: float = meta.get("compile_seconds", 0.0)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """What is done within counts."""
        start = time.monotonic()
        with _Compiling() as compiling:
            yield
        self.compile_seconds += compiling.seconds
        self.seconds += time.monotonic() - start

    def to_json(self) -> dict[str, float]:
        """As it stands."""
        return {"seconds": self.seconds, "compile_seconds": self.compile_seconds}


class _Compiling:
    """The ``seconds`` in which JAX made programs, or fetched them from disk, while ``with`` it."""

    def __enter__(self) -> _Compiling:
        self._spans: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._heard)

    @property
    def seconds(self) -> float:
        return sum((end - begin for begin, end in self._spans), 0.0)

    def _heard(self, event: str, duration_secs: float, **_: str | int) -> None:
        if not event.startswith(STAGES):
            return
        end = time.monotonic()
        while self._spans and self._spans[-1][0] >= end - duration_secs:
            self._spans.pop()  # within this one, as the tracing of the functions it calls
        self._spans.append((end - duration_secs, end))
