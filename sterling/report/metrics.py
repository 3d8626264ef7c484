"""Where the rows of a run go: a file of JSON lines, TensorBoard, Weights & Biases.

A sink has ``write(row)`` and ``close()``. A row is a dict of plain values, of lists with one
number (or None) per seed, and of arrays; see ``sterling.train``.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sterling.notice import say
from sterling.statistics.folders import place
from sterling.types import Mistake

Row = dict[str, Any]
UNPLOTTED = ("step", "steps", "update", "updates", "iteration", "failed")  # bookkeeping, no curves


@runtime_checkable
class Sink(Protocol):
    """Whoever wants to see a run's rows."""

    def write(self, row: Row) -> None:
        """Take one row."""

    def close(self) -> None:
        """Finish; no row follows."""


class MetricsFile:
    """Appends each row to ``path`` as one line of JSON; no line is buffered.

    NaN and infinity become null, so every line is valid JSON. A last line that was torn by a
    killed process is cut off on opening. Rows that the disk refuses, because it is full say, cost
    one line of warning and wait for the next row, or for the end.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(self.path)
        self._waiting = b""  # rows that the disk has refused
        self._warned = False
        self._open()

    def write(self, row: Row) -> None:
        """Add one line, after those that wait."""
        self._waiting += (json.dumps(_plain(row), allow_nan=False) + "\n").encode()
        self._put()

    def truncate(self, iteration: int) -> None:
        """Drop the rows beyond ``iteration``: a run resumed there will write them again. The
        file is cut off where it lies, which a full disk allows."""
        self._file.close()
        known = read(self.path)
        kept = sum(row["iteration"] <= iteration for row in known)
        if kept < len(known):
            lines = self.path.read_bytes().splitlines(keepends=True)
            os.truncate(self.path, sum(map(len, lines[:kept])))
        self._open()

    def close(self) -> None:
        """Close the file; once is enough, twice does no harm."""
        if self._waiting and not self._file.closed:
            self._put()
        self._file.close()

    def _open(self) -> None:
        self._file = self.path.open("ab", buffering=0)
        self._end = self._file.tell()  # of the last whole line

    def _put(self) -> None:
        """Write what waits, all or nothing: half of it, without a word of refusal, is what a disk
        takes before it is full."""
        try:
            self._file.truncate(self._end)
            done = 0
            while done < len(self._waiting):
                done += self._file.write(self._waiting[done:])
        except OSError as error:
            if not self._warned:
                say(f"{self.path} not written ({error}); its rows wait for room")
            self._warned = True
            with contextlib.suppress(OSError):  # else before the next row
                self._file.truncate(self._end)
        else:
            self._end, self._waiting, self._warned = self._end + done, b"", False


class TensorBoard:
    """Writes event files into ``folder``, for ``tensorboard --logdir``; nothing before the first
    row, so that a run that is refused leaves none. TensorBoard forgets what an earlier process has
    written at the first row's step and beyond: a resumed run writes that again."""

    def __init__(self, folder: str | Path):
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise Mistake(
                'TensorBoard files need a package more: pip install "sterling-rl[tensorboard]"'
            ) from error
        self._event, self._summary = Event, Summary
        self._start = SessionLog(status=SessionLog.START)
        self._open = functools.partial(EventFileWriter, str(folder))
        self._writer: Any = None

    def write(self, row: Row) -> None:
        """Add each number as a scalar at the row's step or update."""
        at, now = place(row), time.time()
        if self._writer is None:
            self._writer = self._open()
            self._writer.add_event(self._event(wall_time=now, step=at, session_log=self._start))
        values = [
            self._summary.Value(tag=name, simple_value=value)
            for name, value in scalars(row).items()
        ]
        summary = self._summary(value=values)
        self._writer.add_event(self._event(wall_time=now, step=at, summary=summary))
        self._writer.flush()

    def close(self) -> None:
        """Flush and close the event file."""
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """Logs to a Weights & Biases ``project``; ``options`` go to ``wandb.init``."""

    def __init__(self, project: str, **options: Any):
        try:
            import wandb
        except ImportError as error:
            raise Mistake(
                'Weights & Biases needs a package more: pip install "sterling-rl[wandb]"'
            ) from error
        self._run = wandb.init(project=project, **options)

    def write(self, row: Row) -> None:
        """Log each number at the row's step or update."""
        self._run.log(scalars(row), step=place(row))

    def close(self) -> None:
        """Mark the run as finished."""
        self._run.finish()


def read(path: str | Path) -> list[Row]:
    """The rows of a metrics file; a torn last line is left out.

    Raises Mistake where the file is missing or another line is broken.
    """
    path = Path(path)
    if not path.exists():
        raise Mistake(f"there is no {path}; is this the folder of a run?")
    *lines, _torn = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Mistake(f"{path}, line {number} is no JSON ({error}); delete it") from error
        if not isinstance(row, dict):
            raise Mistake(f"{path}, line {number} is no row but {row!r:.40}; delete it")
        rows.append(row)
    return rows


def scalars(row: Row) -> dict[str, float]:
    """A row as named numbers: per-seed lists become their mean and, if several, each seed's."""
    found: dict[str, float] = {}
    for name, value in _plain(row).items():
        if name in UNPLOTTED:
            continue
        if not isinstance(value, list):
            if isinstance(value, int | float):
                found[name] = float(value)
            continue
        known = {index: float(x) for index, x in enumerate(value) if x is not None}
        if known:
            found[name] = sum(known.values()) / len(known)
        if len(value) > 1:
            found |= {f"{name}/{index}": x for index, x in known.items()}
    return found


def _plain(value: Any) -> Any:
    """JSON's own types: arrays become lists, numbers that are not finite None."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):  # NumPy's and JAX's arrays and scalars
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cut_torn_line(path: Path) -> None:
    """A file ends with a complete line."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
