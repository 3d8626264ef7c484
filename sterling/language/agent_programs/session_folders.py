"""Folders for runs of agent programs, inside one folder of this process in the temporary directory.

The process holds a lock (``flock``) on that folder, which the kernel releases however the process
ends. So the next process that runs programs can tell which folders were left behind by a process
that was killed, and removes these.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "sterling-agents-"


class SessionFolders:
    """The folders of this process."""

    def __init__(self) -> None:
        remove_dead_folders()
        while (locked := _new_locked_folder()) is None:
            pass
        self.path, self._descriptor = locked

    def new(self) -> Path:
        """Return a new folder."""
        return Path(tempfile.mkdtemp(prefix="session-", dir=self.path))

    def close(self) -> None:
        """Remove all folders."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


def remove_dead_folders() -> None:
    """Remove the folders of this user's processes that have ended without doing so."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        descriptor = _lock(folder)
        if descriptor is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _new_locked_folder() -> tuple[Path, int] | None:
    """Return a new folder and its lock; None if another process took it for a dead one before it
    was locked."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    descriptor = _lock(folder)
    if descriptor is None:
        return None
    if not folder.is_dir():
        os.close(descriptor)
        return None
    return folder, descriptor


def _lock(folder: Path) -> int | None:
    """Lock a folder of this user, and return the descriptor that holds the lock; None if a process
    has locked it, or it is no such folder."""
    import fcntl  # not on Windows

    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
