"""Files that are whole or not there: whatever happens while they are written; and where nothing
can be written, one line that says so."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sterling.types import Mistake

PARTIAL = ".partial-"  # in the name of a file or folder that is not finished, before the process
STALE = 3600.0  # seconds after which nobody is still writing what was not touched


class Unwritable(Mistake):
    """A place that cannot be written to."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the file system refuses while ``path`` is written becomes one line that names it."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())[:160]
        raise Unwritable(f"cannot write {path}: {reason}; choose another place") from error


def try_place(path: Path) -> None:
    """Raise :class:`Unwritable` where ``path`` cannot be written, before the work that it is for.
    Nothing is made: what is tried is a nameless file in the folder that is there already."""
    with writing(path):
        path = path.absolute()
        there = path if path.is_dir() else path.parent
        while not os.path.lexists(there):
            there = there.parent
        tempfile.TemporaryFile(dir=there).close()


def check_free(path: Path, size: int) -> None:
    """Raise :class:`Unwritable` where the disk of ``path`` has not so many bytes free."""
    there = path.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if size > free:
        said = f"it takes {size / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free"
        raise Unwritable(f"cannot write {path}: {said}; choose another place")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to; under its own name the file appears whole, or not at all. What writers
    of the same file that were killed have left goes, an hour after they last touched it."""
    sweep(path.parent, path.name, untouched=STALE)
    partial = path.with_name(f".{path.name}{PARTIAL}{os.getpid()}")
    try:
        yield partial
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def sweep(folder: Path, name: str = "", *, untouched: float = 0.0) -> None:
    """Remove the unfinished files that processes which have died left in ``folder``: those of
    ``name``, or all. Who does not hold the folder's lock asks that they were not touched for so
    many seconds, since their writer may run on another machine."""
    for partial in folder.glob(f".{glob.escape(name) or '*'}{PARTIAL}*"):
        owner = partial.name.rpartition("-")[2]
        if not owner.isdigit() or runs(int(owner)):
            continue
        with contextlib.suppress(OSError):  # it has gone, or may not be removed: litter, no more
            if time.time() - partial.stat().st_mtime >= untouched:
                partial.unlink()


def runs(process: int) -> bool:
    """Whether a process of this machine is alive, for whomever it runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # no process has a number as large as that
        return False
    except PermissionError:
        return True
    return True


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing, or nothing but files that somebody who was killed had not
    finished (see :func:`replacing`)."""
    return not any(PARTIAL not in each.name for each in folder.iterdir())


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def anonymous_file() -> int:
    """A file in memory, open, that has no name and so leaves nothing behind."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("sterling")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
