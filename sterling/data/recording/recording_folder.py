"""Write episodes into a folder as they end, so that a crash loses none that is complete."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import IO, Any

import numpy as np

from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts
from sterling.data.episode_columns import Block, join_blocks
from sterling.data.formats import npz, recording, sterling_format
from sterling.data.space_json import Space, column_spaces, space_to_json
from sterling.system.atomic_files import check_writable, explain_write_errors, is_empty
from sterling.types import Mistake

JOINED_FILES = 32  # files of about equally many episodes that are joined to one
MAX_JOINED_BYTES = 1 << 28  # larger files are not joined any more


class RecordingFolder:
    """A folder that takes whole episodes. Only one process can write to it at a time.

    Raises Mistake if the folder holds something other than a dataset, or a dataset with other
    spaces, or if another process writes to it.
    """

    def __init__(self, path: Path, obs_space: Space, action_space: Space, facts: Facts):
        self.path, self._spaces, self._facts = path, (obs_space, action_space), facts
        check_writable(path)
        is_new = not path.exists() or (path.is_dir() and (is_empty(path) or _only_begun(path)))
        if not (is_new or recording.recognises(path) or sterling_format.recognises(path)):
            raise Mistake(f"{path} exists and is not a dataset. Choose another name.")
        with explain_write_errors(path):
            (path / recording.EPISODES_FOLDER).mkdir(parents=True, exist_ok=True)
            self._lock = _lock_file(path)
        try:
            self._join(is_new)
        except BaseException:
            self._lock.close()
            raise

    def _join(self, is_new: bool) -> None:
        """Begin a recording, or check that the one that exists has the same spaces."""
        if is_new:
            recording.write_mark(self.path, *self._spaces, self._facts)
            return
        marked = recording.recognises(self.path)
        there = recording.read_mark(self.path) if marked else _dataset_mark(self.path)
        pairs = zip(("observations", "actions"), self._spaces, there[:2], strict=True)
        for kind, own, its in pairs:
            if _as_text(own) != _as_text(its):
                raise Mistake(
                    f"{self.path} holds {kind} of {its}, and the environment has {own}. Choose "
                    "another folder."
                )
        if there[2].environment != self._facts.environment:
            raise Mistake(
                f"{self.path} holds episodes of {there[2].environment or 'an unnamed environment'}"
                f", not of {self._facts.environment or 'one without a name'}. Choose another "
                "folder."
            )
        if not marked:
            _check_same_columns(self.path, *self._spaces)
            recording.write_mark(self.path, *there)

    @property
    def episodes(self) -> int:
        """Return the number of episodes recorded, without those of a dataset appended to."""
        files = recording.episode_files(self.path)
        return recording.episode_range(files[-1])[1] + 1 if files else 0

    def append(self, block: Block) -> None:
        """Write whole episodes; when this returns they are on the disk."""
        first = self.episodes
        self._write(block, first, first + len(block.lengths) - 1)
        while self._join_files():
            pass

    def _write(self, block: Block, first: int, last: int) -> None:
        made = Dataset.from_block(block, *self._spaces, self._facts)
        name = f"{first:09d}-{last:09d}.npz"
        path = self.path / recording.EPISODES_FOLDER / name
        with explain_write_errors(path):
            npz.write(made, path)

    def _join_files(self) -> bool:
        """Join the newest files if there are enough of them with about equally many episodes;
        return whether it was done."""
        files = recording.episode_files(self.path)
        newest = [file for file in files if _level(file) == _level(files[-1])][-JOINED_FILES:]
        size = sum(file.stat().st_size for file in newest)
        if len(newest) < JOINED_FILES or size > MAX_JOINED_BYTES:
            return False
        read = [npz.read(file) for file in newest]
        if any(one.facts != self._facts for one in read):
            return False  # of an earlier recording: their sources are other ones
        ends = recording.episode_range(newest[0])[0], recording.episode_range(newest[-1])[1]
        self._write(join_blocks(block for one in read for block in one.blocks), *ends)
        for file in newest:
            file.unlink()
        return True

    def close(self) -> None:
        """Let other processes write to the folder."""
        self._lock.close()


def _level(file: Path) -> int:
    first, last = recording.episode_range(file)
    return int(math.log(last - first + 1, JOINED_FILES) + 1e-9)


def _dataset_mark(path: Path) -> tuple[Space, Space, Facts]:
    found = sterling_format.read(path)
    return found.obs_space, found.action_space, found.facts


def _only_begun(path: Path) -> bool:
    """Whether a crash left a folder that was about to become a recording."""
    return [each.name for each in path.iterdir()] == [recording.EPISODES_FOLDER]


def _check_same_columns(path: Path, obs_space: Space, action_space: Space) -> None:
    """Raise Mistake if a dataset has other columns, or other types, than a recording."""
    parts = {**column_spaces("obs", obs_space), **column_spaces("action", action_space)}
    wanted = {name: np.dtype(part.dtype) for name, part in parts.items()}
    wanted |= {"reward": np.dtype(np.float32), "discount": np.dtype(np.float32)}
    first = next(sterling_format.read(path).blocks).arrays
    had = {name: array.dtype for name, array in first.items()}
    differs = sorted(name for name in {*had, *wanted} if had.get(name) != wanted.get(name))
    if differs:
        raise Mistake(
            f"{path} cannot be appended to: it differs from a recording in {', '.join(differs)}. "
            "Record into another folder"
        )


def _as_text(space: Space) -> str:
    return json.dumps(space_to_json(space), sort_keys=True)


def _lock_file(path: Path) -> IO[Any]:
    """Return an open file that no other process can lock until it is closed."""
    file = (path / recording.EPISODES_FOLDER / ".lock").open("w")
    try:
        import fcntl
    except ImportError:  # Windows, where nothing prevents a second writer
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise Mistake(
            f"another Recorder writes to {path}. Give every environment a folder of its own, and "
            "join them: sterling data import A B OUT"
        ) from error
    return file


def episode_block(arrays: dict[str, list[np.ndarray]], length: int) -> Block:
    """Make a block of one episode from the entries of its columns."""
    columns = {name: np.stack(entries) for name, entries in arrays.items()}
    return Block(columns, np.array([length], np.int64), np.zeros(1, np.int32)).checked()
