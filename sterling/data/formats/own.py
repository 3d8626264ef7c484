"""Sterling's own format: a folder of ``.npy`` columns and ``dataset.json``, which names them.

The columns' files carry a part of their hash in their names, and ``dataset.json`` is replaced in
one move after all of them are on the disk: a crash while writing leaves the old dataset whole.
Files can be mapped, and any NumPy reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sterling.data.columns import Arrays, Block, Digest, Stream
from sterling.data.facts import Facts, Passport
from sterling.data.formats.opened import OTHER, Opened, needed
from sterling.data.spaces import Space
from sterling.disk import PARTIAL, STALE, replacing, sweep, sync
from sterling.types import Mistake

NAME, VERSION = "dataset.json", 1


def recognises(path: Path) -> bool:
    """Whether it is such a folder."""
    return (path / NAME).is_file()


def load(path: Path, memory: int) -> Opened:
    """The columns, read and verified against the hash; mapped, and only their sizes verified,
    where they take more than ``memory`` bytes."""
    said = json.loads((path / NAME).read_text())
    if said.get("version") != VERSION:
        raise Mistake(f"{NAME} has version {said.get('version')}; this Sterling reads {VERSION}")
    passport = Passport.from_json(said)
    files = {name: path / file for name, file in needed(said, ["columns"]).items()}
    for name, file in files.items():
        if not file.is_file():
            raise Mistake(f"the file {file.name} of column {name!r} is missing; restore it")
    arrays = {name: _mapped(file) for name, file in files.items()}
    size = sum(array.nbytes for array in arrays.values())
    mapped = size > memory
    if not mapped:
        arrays = {name: np.load(file, allow_pickle=False) for name, file in files.items()}
    lengths = np.array(arrays.pop("lengths"), np.int64)
    if len(lengths) != len(passport.sources):
        raise Mistake(f"{len(lengths)} episodes where {NAME} speaks of {len(passport.sources)}")
    block = Block(arrays, lengths, passport.sources).checked()
    if not mapped and _digest(block, passport) != passport.hash:
        raise Mistake(f"{path} {OTHER}")
    return Opened(block, passport, mapped)


def read(path: Path, limit: int | None = None) -> Stream:
    """The same as a stream, for converting and joining; mapped, so nothing is verified yet."""
    from sterling.data.dataset import Dataset

    opened = load(path, 0)
    known = (opened.passport.obs_space, opened.passport.action_space, opened.passport.facts)
    found = Dataset.of(opened.block, *known)
    return Stream(*known, found.blocks(), found.bytes, opened.passport.hash)


def write(dataset: Any, path: Path) -> None:
    """Write a dataset."""
    write_blocks(dataset.obs_space, dataset.action_space, dataset.facts, dataset.blocks(), path)


def write_blocks(
    obs_space: Space, action_space: Space, facts: Facts, blocks: Iterable[Block], path: Path
) -> None:
    """Write experience block by block; only one of them is in memory at a time."""
    path.mkdir(parents=True, exist_ok=True)
    sweep(path, untouched=STALE)
    digest, sources, columns = Digest(obs_space, action_space), [np.zeros(0, np.int32)], {}
    with contextlib.ExitStack() as open_files:
        for block in digest.passing(blocks):
            sources.append(block.sources.astype(np.int32))
            for name, array in _all(block).items():
                if name not in columns:
                    column = _Column(path, name, array)
                    columns[name] = open_files.enter_context(contextlib.closing(column))
                columns[name].append(array)
        if "reward" not in columns or not columns["reward"].count:
            raise Mistake("there are no rows; nothing was written")
        files = {name: column.finish() for name, column in columns.items()}
    passport = Passport(obs_space, action_space, facts, np.concatenate(sources), digest.value)
    said = {"version": VERSION, "columns": files, **passport.to_json()}
    sync(path)
    with replacing(path / NAME) as partial:
        partial.write_text(json.dumps(said, indent=1) + "\n")
    for old in path.glob("*.npy"):  # of the dataset that stood here before
        if old.name not in files.values():
            old.unlink()


class _Column:
    """A ``.npy`` file that grows; its header leaves room for the final length."""

    def __init__(self, folder: Path, name: str, like: np.ndarray):
        self._name, self._dtype, self._shape = name, like.dtype, like.shape[1:]
        self._folder, self._sha, self.count = folder, hashlib.sha256(), 0
        word = re.sub(r"[^A-Za-z0-9_]+", ".", name)
        self._partial = folder / f".{word}.{_short(name)}{PARTIAL}{os.getpid()}"
        self._file: BinaryIO = self._partial.open("wb")
        self._header()

    def append(self, array: np.ndarray) -> None:
        """Add entries; raises Mistake where they are of another kind than those before."""
        if (array.dtype, array.shape[1:]) != (self._dtype, self._shape):
            raise Mistake(
                f"column {self._name!r} changes from {self._dtype} {self._shape} to "
                f"{array.dtype} {array.shape[1:]}"
            )
        content = np.ascontiguousarray(array)
        self._sha.update(content.data if content.size else b"")
        content.tofile(self._file)
        self.count += len(array)

    def finish(self) -> str:
        """Give the file its name, which is returned."""
        self._file.seek(0)
        self._header()
        self._file.flush()
        os.fsync(self._file.fileno())
        word = re.sub(r"[^A-Za-z0-9_]+", ".", self._name)
        final = f"{word}-{_short(self._name)}{self._sha.hexdigest()[:12]}.npy"
        self._partial.replace(self._folder / final)
        return final

    def close(self) -> None:
        """Remove what was not finished."""
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def _header(self) -> None:
        shape = (self.count, *self._shape)
        descr = np.lib.format.dtype_to_descr(self._dtype)
        facts = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(self._file, facts)


def _short(name: str) -> str:
    """Eight digits that tell apart columns whose names look alike as file names."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _all(block: Block) -> Arrays:
    return {**block.arrays, "lengths": block.lengths.astype(np.int64)}


def _digest(block: Block, passport: Passport) -> str:
    digest = Digest(passport.obs_space, passport.action_space)
    digest.add(block)
    return digest.value


def _mapped(file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError:  # an empty array has nothing to map
        return np.load(file, allow_pickle=False)
