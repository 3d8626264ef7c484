"""A folder of files that only this user can have written, bounded in size.

Its files may run code when they are read. So a file is read only if it and the folder belong to
this user, and nobody else may write to them. Each file begins with its own name and a checksum: a
damaged or renamed one is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from sterling.system.atomic_files import atomic_write

MAX_BYTES = 256 * 2**20  # of all files; the files unused for longest are removed
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class TrustedFolder:
    """Files by name. Nothing here raises an OSError: what cannot be read or written is absent."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES):
        self.path, self._max_bytes = path, max_bytes

    @staticmethod
    def is_possible() -> bool:
        """Whether this operating system tells who may write a file (Windows does not)."""
        return hasattr(os, "geteuid")

    def create(self) -> bool:
        """Create the folder if it is absent; return whether files can be kept in it."""
        with contextlib.suppress(OSError):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._is_own() and os.access(self.path, os.W_OK)
        return False

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it is absent, damaged, or another's to write."""
        try:
            if not self._is_own():
                return None
            number = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW)
            with open(number, "rb") as file:
                if not self._is_private(os.fstat(number), stat.S_ISREG):
                    return None
                content = file.read()
            os.utime(self.path / name)  # used now
        except OSError:
            return None
        head = _head(name, content[_HEAD_BYTES:])
        return content[_HEAD_BYTES:] if content.startswith(head) else None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, complete or not at all, and remove old files until all of them fit."""
        if len(content) > self._max_bytes or not self.create():
            return
        with contextlib.suppress(OSError):
            with atomic_write(self.path / name) as partial:
                number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(number, "wb") as file:
                    file.write(_head(name, content) + content)
            self._remove_oldest()

    def remove(self, name: str) -> None:
        """Remove a file."""
        with contextlib.suppress(OSError):
            (self.path / name).unlink(missing_ok=True)

    def _remove_oldest(self) -> None:
        found = sorted((place.stat().st_mtime, place) for place in self.path.iterdir())
        total = sum(place.stat().st_size for _, place in found)
        for _, place in found:
            if total <= self._max_bytes:
                break
            total -= place.stat().st_size
            place.unlink(missing_ok=True)

    def _is_own(self) -> bool:
        return self._is_private(os.lstat(self.path), stat.S_ISDIR)

    @staticmethod
    def _is_private(facts: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
        own = facts.st_uid == os.geteuid() and not facts.st_mode & OTHERS_MAY_WRITE
        return own and is_kind(facts.st_mode)


def _head(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + content).digest()


_HEAD_BYTES = len(_head("", b""))
