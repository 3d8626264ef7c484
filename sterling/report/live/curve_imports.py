"""Import what draws the learning curve while the run still trains."""

from __future__ import annotations

import contextlib
import threading

from sterling.report.live.metric_sinks import Row


class CurveImports:
    """A sink that imports Matplotlib in a thread at the first row: from then on the training leaves
    the interpreter idle, and the end of a short run does not wait for a third of a second."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def write(self, row: Row) -> None:
        """Start the imports at the first row."""
        if self._thread is None:
            self._thread = threading.Thread(target=_import_quietly, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Do nothing: the first picture waits until the imports are done."""


def _import_quietly() -> None:
    with contextlib.suppress(Exception):  # the first picture raises it again
        from sterling.report.pictures import learning_curve, plot_style

        del learning_curve
        plot_style.import_matplotlib()
