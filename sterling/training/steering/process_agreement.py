"""Agreement of a run's processes on when to stop: each posts what it knows, and reads the others.

Every process writes one line per row to ``agreement.jsonl`` in its own folder and waits until the
others have written theirs for the same iteration. All then decide from the same posts, so they stop
at the same iteration. The first post for an iteration counts, so that a process that is killed and
repeats some iterations decides as it did before. The file ``training`` is in the folder of every
process that has not ended; it can also be removed where the disk is full.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.05

Post = dict[str, Any]  # "iteration"; "returns" of an evaluation, or None; "stop" asked for, or None


class ProcessAgreement:
    """The posts of one process, in the folder ``own``, and of all ``folders``."""

    def __init__(self, own: Path | None = None, folders: Sequence[Path] = ()):
        self._own, self._folders = own, list(folders)

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return len(self._folders) < 2

    def exchange(self, post: Post, asked_to_leave: Callable[[], bool]) -> list[Post] | None:
        """Post, wait, and return the posts of all processes for the same iteration. A process whose
        seeds have all failed has none. Return None if asked to leave meanwhile."""
        if self.alone:
            return [post]
        assert self._own is not None
        self._write(post)
        found: dict[Path, Post | None] = {}
        while missing := [folder for folder in self._folders if folder not in found]:
            for folder in missing:
                ended = not _mark_path(folder).exists()  # read first: no post follows
                known = read_posts(folder).get(post["iteration"])
                if known is not None or ended:
                    found[folder] = known
            if asked_to_leave():
                return None
            if len(found) < len(self._folders):
                time.sleep(POLL_SECONDS)
        return [each for folder in self._folders if (each := found[folder]) is not None]

    def end(self) -> None:
        """Say that this process has ended and posts no more."""
        if self._own is not None:
            _mark_path(self._own).unlink(missing_ok=True)

    def _write(self, post: Post) -> None:
        assert self._own is not None
        if post["iteration"] in read_posts(self._own):
            return
        file = posts_path(self._own)
        torn = file.exists() and not file.read_bytes().endswith(b"\n")
        with file.open("ab") as out:
            out.write((b"\n" if torn else b"") + (json.dumps(post) + "\n").encode())


def mark_as_training(folder: Path) -> None:
    """Say that a process will train in the folder; to be called before any process is started."""
    folder.mkdir(parents=True, exist_ok=True)
    _mark_path(folder).touch()


def _mark_path(folder: Path) -> Path:
    return folder / "training"


def posts_path(folder: Path) -> Path:
    """Return the file with a process's posts."""
    return folder / "agreement.jsonl"


def read_posts(folder: Path) -> dict[int, Post]:
    """Return the posts in a process's folder by iteration, without incomplete lines."""
    file = posts_path(folder)
    found: dict[int, Post] = {}
    for line in file.read_bytes().split(b"\n")[:-1] if file.exists() else ():
        try:
            post = json.loads(line)
        except ValueError:  # torn by a kill
            continue
        if isinstance(post, dict) and isinstance(post.get("iteration"), int):
            found.setdefault(post["iteration"], post)
    return found
