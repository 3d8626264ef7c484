"""Sinks for a run's rows of metrics: a file of JSON lines, TensorBoard, Weights & Biases.

A sink has ``write(row)`` and ``close()``. A row is a dict of plain values, of lists with one number
(or None) per seed, and of arrays; see ``sterling.train``.
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

from sterling.statistics.scores.run_folder_scores import row_progress
from sterling.system.shown_values import shown_value
from sterling.system.terminal_messages import print_notice
from sterling.types import Mistake

Row = dict[str, Any]
# not plotted
BOOKKEEPING_FIELDS = (
    "step",
    "steps",
    "update",
    "updates",
    "iteration",
    "failed",
)


@runtime_checkable
class Sink(Protocol):
    """A receiver of a run's rows."""

    def write(self, row: Row) -> None:
        """Receive one row."""

    def close(self) -> None:
        """Finish; no row follows."""


class MetricsFile:
    """Append each row to ``path`` as one line of JSON, unbuffered.

    NaN and infinity become null, so every line is valid JSON. A last line left incomplete by a
    killed process is removed on opening. Rows that cannot be written, because the disk is full for
    example, cost one line of warning; they are written with the next row, or at the end.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(self.path)
        self._waiting = b""  # rows that could not be written yet
        self._warned = False
        self._open()

    def write(self, row: Row) -> None:
        """Append one row, after the rows that could not be written before."""
        self._waiting += (json.dumps(_to_json_values(row), allow_nan=False) + "\n").encode()
        self._put()

    def truncate(self, iteration: int) -> None:
        """Drop the rows beyond ``iteration``: a run resumed there writes them again.

        Truncates in place, which also works on a full disk.
        """
        self._file.close()
        known = read_metrics(self.path)
        kept = sum(row["iteration"] <= iteration for row in known)
        if kept < len(known):
            lines = self.path.read_bytes().splitlines(keepends=True)
            os.truncate(self.path, sum(map(len, lines[:kept])))
        self._open()

    def close(self) -> None:
        """Close the file; calling it twice is safe."""
        if self._waiting and not self._file.closed:
            self._put()
        self._file.close()

    def _open(self) -> None:
        self._file = self.path.open("ab", buffering=0)
        self._end = self._file.tell()  # position after the last complete line

    def _put(self) -> None:
        """Write the waiting rows, all or nothing.

        A disk that is almost full may take half of them without an error.
        """
        try:
            self._file.truncate(self._end)
            done = 0
            while done < len(self._waiting):
                done += self._file.write(self._waiting[done:])
        except OSError as error:
            if not self._warned:
                print_notice(
                    f"{self.path} not written ({error}); its rows wait for free disk space"
                )
            self._warned = True
            with contextlib.suppress(OSError):  # if this fails, it is done before the next row
                self._file.truncate(self._end)
        else:
            self._end, self._waiting, self._warned = self._end + done, b"", False


class TensorBoard:
    """Write event files into ``folder``, for ``tensorboard --logdir``.

    Nothing is written before the first row, so that a refused run leaves no files. TensorBoard
    discards what an earlier process has written from the first row's step on: a resumed run writes
    that again.
    """

    def __init__(self, folder: str | Path):
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise Mistake(
                'TensorBoard files need another package: pip install "sterling-rl[tensorboard]"'
            ) from error
        self._event, self._summary = Event, Summary
        self._start = SessionLog(status=SessionLog.START)
        self._open = functools.partial(EventFileWriter, str(folder))
        self._writer: Any = None

    def write(self, row: Row) -> None:
        """Add each number as a scalar at the row's step or update."""
        at, now = row_progress(row), time.time()
        if self._writer is None:
            self._writer = self._open()
            self._writer.add_event(self._event(wall_time=now, step=at, session_log=self._start))
        values = [
            self._summary.Value(tag=name, simple_value=value)
            for name, value in row_scalars(row).items()
        ]
        summary = self._summary(value=values)
        self._writer.add_event(self._event(wall_time=now, step=at, summary=summary))
        self._writer.flush()

    def close(self) -> None:
        """Flush and close the event file."""
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """Log to a Weights & Biases ``project``; ``options`` are passed to ``wandb.init``."""

    def __init__(self, project: str, **options: Any):
        try:
            import wandb
        except ImportError as error:
            raise Mistake(
                'Weights & Biases needs another package: pip install "sterling-rl[wandb]"'
            ) from error
        self._run = wandb.init(project=project, **options)

    def write(self, row: Row) -> None:
        """Log each number at the row's step or update."""
        self._run.log(row_scalars(row), step=row_progress(row))

    def close(self) -> None:
        """Mark the run as finished."""
        self._run.finish()


def read_metrics(path: str | Path) -> list[Row]:
    """Read the rows of a metrics file, without an incomplete last line.

    Raises Mistake where the file is missing or another line is broken.
    """
    path = Path(path)
    if not path.exists():
        raise Mistake(f"{path} does not exist; is this the folder of a run?")
    *lines, _torn = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Mistake(
                f"{path}, line {number} is not valid JSON ({error}); delete that line"
            ) from error
        if not isinstance(row, dict):
            raise Mistake(
                f"{path}, line {number} is not a JSON object but {shown_value(row)}; delete that "
                "line"
            )
        rows.append(row)
    return rows


def row_scalars(row: Row) -> dict[str, float]:
    """Return a row as named numbers; per-seed lists become their mean and each seed's number."""
    found: dict[str, float] = {}
    for name, value in _to_json_values(row).items():
        if name in BOOKKEEPING_FIELDS:
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


def _to_json_values(value: Any) -> Any:
    """Convert to JSON's types: arrays become lists, NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(name): _to_json_values(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_values(part) for part in value]
    if hasattr(value, "tolist"):  # NumPy's and JAX's arrays and scalars
        return _to_json_values(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cut_torn_line(path: Path) -> None:
    """Remove an incomplete last line from a file."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
