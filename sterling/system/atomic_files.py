"""Atomic file writes: a file is complete or absent. Failed writes raise an error of one line."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sterling.system.mistake import Mistake
from sterling.system.shown_values import short_text
from sterling.system.windows_limits import IS_WINDOWS

PARTIAL_MARK = (
    ".partial-"  # in the name of an unfinished file or folder, followed by the process id
)
STALE_SECONDS = (
    3600.0  # seconds without a change after which an unfinished file counts as abandoned
)


class Unwritable(Mistake):
    """A path that cannot be written to."""


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Context manager that turns an OSError into an :class:`Unwritable` that names ``path``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or short_text(str(error))
        raise Unwritable(f"cannot write {path}: {reason}. Choose another path.") from error


def check_writable(path: Path) -> None:
    """Raise :class:`Unwritable` if ``path`` cannot be written, before any work is done.

    Leaves nothing behind: it opens a nameless temporary file in the nearest existing folder."""
    with explain_write_errors(path):
        path = path.absolute()
        there = path if path.is_dir() else path.parent
        while not os.path.lexists(there):
            there = there.parent
        tempfile.TemporaryFile(dir=there).close()


def check_free_space(path: Path, size: int) -> None:
    """Raise :class:`Unwritable` if fewer than ``size`` bytes are free on the disk of ``path``."""
    there = path.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if size > free:
        reason = f"it takes {size / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free"
        raise Unwritable(f"cannot write {path}: {reason}. Choose another path.")


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Context manager that gives a temporary path, and renames it to ``path`` at the end: the file
    appears complete or not at all. Also removes unfinished copies left by writers that were
    killed, an hour after their last change."""
    remove_partial_files(path.parent, path.name, untouched=STALE_SECONDS)
    partial = path.with_name(f".{path.name}{PARTIAL_MARK}{os.getpid()}")
    try:
        yield partial
        flush_to_disk(partial)
        partial.replace(path)
        flush_to_disk(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def remove_partial_files(folder: Path, name: str = "", *, untouched: float = 0.0) -> None:
    """Remove unfinished files in ``folder`` whose writers have died: those of ``name``, or all.

    Without the folder's lock, pass ``untouched``, the seconds since their last change: their
    writer may run on another machine."""
    for partial in folder.glob(f".{glob.escape(name) or '*'}{PARTIAL_MARK}*"):
        owner = partial.name.rpartition("-")[2]
        if not owner.isdigit() or is_process_alive(int(owner)):
            continue
        with contextlib.suppress(OSError):  # already gone, or not removable: harmless
            if time.time() - partial.stat().st_mtime >= untouched:
                partial.unlink()


def is_process_alive(process: int) -> bool:
    """Whether a process of this machine is alive, of any user."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # OverflowError: larger than any process id
        return False
    except PermissionError:
        return True
    return True


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing but unfinished files (see :func:`atomic_write`)."""
    return not any(PARTIAL_MARK not in each.name for each in folder.iterdir())


def flush_to_disk(path: Path) -> None:
    """Flush a file, or a folder's list of names, to the disk (``fsync``)."""
    if IS_WINDOWS and path.is_dir():
        return  # Windows cannot open a folder, and keeps its list of names by itself
    descriptor = os.open(path, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def anonymous_file() -> int:
    """Return the descriptor of an open file in memory, which has no name and leaves no trace."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("sterling")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
