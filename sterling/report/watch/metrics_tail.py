"""Read a log of metrics again and again while it is written, only its new bytes each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MARK_BYTES = 256  # so many bytes before the position are compared, to notice a rewritten log


class MetricsTail:
    """The rows of a ``metrics.jsonl`` that is being written.

    An incomplete last line waits until it is complete. A run that is resumed from an earlier
    checkpoint rewrites the end of its log: then all rows are read anew, and ``generation`` grows.
    """

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self.generation = 0
        self.broken = 0  # lines that are not JSON objects
        self._position, self._mark = 0, b""

    def poll(self) -> bool:
        """Read what is new; return whether there was anything."""
        try:
            with self.path.open("rb") as file:
                if not self._is_continued(file):
                    self._begin_anew()
                    file.seek(0)
                content = file.read()
        except OSError:
            content = b""
            if not self.path.exists() and self.rows:
                self._begin_anew()
                return True
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._add_line(line)
        self._position += len(whole)
        self._mark = (self._mark + whole)[-MARK_BYTES:]
        return bool(whole)

    def _is_continued(self, file: Any) -> bool:
        """Whether the log still has what was read before; if so the file is at the position."""
        file.seek(self._position - len(self._mark))
        return bool(file.read(len(self._mark)) == self._mark)

    def _begin_anew(self) -> None:
        self.rows, self.broken, self._position, self._mark = [], 0, 0, b""
        self.generation += 1

    def _add_line(self, line: bytes) -> None:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            self.rows.append(row)
        elif line.strip():
            self.broken += 1
