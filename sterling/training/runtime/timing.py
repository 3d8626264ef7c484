"""Measure a run's working time, and the compile time in it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import jax.monitoring

COMPILE_EVENTS = "/jax/core/compile/"  # prefix of JAX's events of tracing, lowering and compiling


class Clock:
    """A run's working time ``seconds``, over all its processes, of which ``compile_seconds``."""

    def __init__(self, meta: dict[str, Any]):
        """Start at 0, or at the times that :meth:`to_json` wrote into ``meta``."""
        self.seconds: float = meta.get("seconds", 0.0)
        self.compile_seconds: float = meta.get("compile_seconds", 0.0)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Context manager that adds the time of its block."""
        start = time.monotonic()
        with _CompileTimer() as compiling:
            yield
        self.compile_seconds += compiling.seconds
        self.seconds += time.monotonic() - start

    def to_json(self) -> dict[str, float]:
        """Return the times so far."""
        return {"seconds": self.seconds, "compile_seconds": self.compile_seconds}


class _CompileTimer:
    """Context manager that measures the ``seconds`` in which JAX compiles or loads programs."""

    def __enter__(self) -> _CompileTimer:
        self._spans: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._heard)

    @property
    def seconds(self) -> float:
        return sum((end - begin for begin, end in self._spans), 0.0)

    def _heard(self, event: str, duration_secs: float, **_: str | int) -> None:
        if not event.startswith(COMPILE_EVENTS):
            return
        end = time.monotonic()
        while self._spans and self._spans[-1][0] >= end - duration_secs:
            self._spans.pop()  # nested in this span, as the tracing of a called function is
        self._spans.append((end - duration_secs, end))
