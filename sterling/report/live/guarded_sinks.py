"""Sinks and callbacks whose errors do not end the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sterling.report.live.metric_sinks import Row, Sink
from sterling.system.terminal_messages import print_notice


class GuardedSinks:
    """Several sinks as one: a sink that raises is dropped with one line, the others go on.

    So a progress panel whose terminal has closed, or a service that does not answer, does not stop
    a run.
    """

    def __init__(self, sinks: Sequence[Sink]):
        self._sinks = list(sinks)

    def write(self, row: Row) -> None:
        """Pass a row to each sink."""
        self._each(lambda sink: sink.write(row))

    def show_observations(self, lines: Sequence[str]) -> bool:
        """Pass lines on how observations are read to the sinks that show them; return whether
        there is one."""
        shown = [sink for sink in self._sinks if hasattr(sink, "show_observations")]
        self._each(lambda sink: sink.show_observations(lines) if sink in shown else None)
        return bool(shown)

    def close(self) -> None:
        """Close each sink."""
        self._each(lambda sink: sink.close())

    def _each(self, do: Callable[[Any], None]) -> None:
        for sink in list(self._sinks):
            try:
                do(sink)
            except (Exception, SystemExit) as error:  # rich raises SystemExit on a broken pipe
                self._sinks.remove(sink)
                print_notice(f"{_dropped_text(sink, error)}; training continues without it")


class GuardedCallback:
    """A callback that is dropped, with one line of warning, once nobody reads what it prints.

    Only OSError is handled so; any other exception ends the work.
    """

    def __init__(self, watch: Callable[..., None]):
        self._watch: Callable[..., None] | None = watch

    def __call__(self, *told: Any) -> None:
        """Call the callback, unless it was dropped."""
        if self._watch is None:
            return
        try:
            self._watch(*told)
        except OSError as error:
            watch, self._watch = self._watch, None
            print_notice(f"{_dropped_text(watch, error)}; the work continues without it")


def _dropped_text(taker: Any, error: BaseException) -> str:
    """Return a text that says which sink or callback was dropped, and why."""
    why = f"{type(error).__name__}: {error}".partition("\n")[0]
    return f"{type(taker).__name__} was dropped after an error ({why})"
