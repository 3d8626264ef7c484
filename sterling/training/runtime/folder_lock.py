"""The lock of a run folder: only one process at a time may write there."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

from sterling.system.atomic_files import explain_write_errors, remove_partial_files
from sterling.system.windows_limits import IS_WINDOWS
from sterling.types import Mistake

LOCKED_BYTE = 1 << 30  # Windows locks bytes, and nobody else can read them: one behind the text


class FolderLock:
    """Context manager that allows one writer per run folder; the kernel releases it at exit.

    The file ``lock`` stays behind; what counts is the kernel's lock on it (``flock``), so the lock
    of a killed run is free. Entering removes the unfinished files of such a run. Raise
    :class:`Mistake` if another process, or another ``FolderLock`` of this process, holds it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._descriptor: int | None = None

    def __enter__(self) -> FolderLock:
        with explain_write_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(descriptor)
        except OSError as refused:
            if not isinstance(refused, BlockingIOError | PermissionError):  # the latter: Windows
                raise
            owner = os.read(descriptor, 256).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise Mistake(
                f"{self.folder} is in use by process {owner}. Wait until it ends, or stop it first."
            ) from None
        os.ftruncate(descriptor, 0)
        with contextlib.suppress(OSError):  # a full disk; the lock itself needs no space
            os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
        self._descriptor = descriptor
        _held_locks.add(self)
        remove_partial_files(self.folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Release the folder; may be called twice."""
        if self._descriptor is not None:
            _unlock(self._descriptor)
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        _held_locks.discard(self)


def _lock(descriptor: int) -> None:
    """Lock an open file for this process, or raise the system's error if another holds it."""
    if IS_WINDOWS:
        windows: Any = importlib.import_module("msvcrt")
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        try:
            windows.locking(descriptor, windows.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        unix: Any = importlib.import_module("fcntl")
        unix.flock(descriptor, unix.LOCK_EX | unix.LOCK_NB)


def _unlock(descriptor: int) -> None:
    if IS_WINDOWS:
        windows: Any = importlib.import_module("msvcrt")
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        windows.locking(descriptor, windows.LK_UNLCK, 1)
    else:
        unix: Any = importlib.import_module("fcntl")
        unix.flock(descriptor, unix.LOCK_UN)


_held_locks: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_locks() -> None:
    """In a forked child, close the locks: a worker that outlives its parent must not keep them."""
    for lock in list(_held_locks):
        lock._close()  # closes the child's copy; unlocking would unlock the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
