"""Sinks that cannot end the run that they are told of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sterling.notice import say
from sterling.report.metrics import Row, Sink


class Guarded:
    """Further takers of rows as one sink: one that raises is dropped, with one line, and the others
    go on. A progress panel whose reader has gone, or a service that does not answer, costs a run
    nothing but what it would have shown."""

    def __init__(self, sinks: Sequence[Sink]):
        self._sinks = list(sinks)

    def write(self, row: Row) -> None:
        """Hand a row to each."""
        self._each(lambda sink: sink.write(row))

    def close(self) -> None:
        """Close each."""
        self._each(lambda sink: sink.close())

    def _each(self, do: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                do(sink)
            except (Exception, SystemExit) as error:  # rich makes SystemExit of a broken pipe
                self._sinks.remove(sink)
                say(f"{_dropped(sink, error)}; training goes on without it")


class GuardedWatch:
    """A callable that may find nobody who reads what it prints: it is called no more then, which is
    said in one line, and the work goes on. What else it raises ends the work."""

    def __init__(self, watch: Callable[..., None]):
        self._watch: Callable[..., None] | None = watch

    def __call__(self, *told: Any) -> None:
        """Hand on what is told."""
        if self._watch is None:
            return
        try:
            self._watch(*told)
        except OSError as error:
            watch, self._watch = self._watch, None
            say(f"{_dropped(watch, error)}; the work goes on without it")


def _dropped(taker: Any, error: BaseException) -> str:
    """Say who is told no more, and why."""
    why = f"{type(error).__name__}: {error}".partition("\n")[0]
    return f"{type(taker).__name__} is told no more ({why})"
