"""Read and write Sterling's own format: a folder of ``.npy`` columns and ``dataset.json``.

``dataset.json`` names the columns' files, whose names contain a part of their hash. It is replaced
in one move after all columns are on the disk, so a crash while writing leaves the old dataset
complete. The files can be memory-mapped, and NumPy can read them without Sterling.
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

from sterling.data.dataset_metadata import Facts, Metadata
from sterling.data.episode_columns import (
    Arrays,
    Block,
    ContentHash,
    Stream,
    block_ranges,
    check_columns,
)
from sterling.data.formats.damaged_files import HASH_MISMATCH, LoadedFile, require_entry
from sterling.data.space_json import Space
from sterling.system.atomic_files import (
    PARTIAL_MARK,
    STALE_SECONDS,
    atomic_write,
    flush_to_disk,
    remove_partial_files,
)
from sterling.types import Mistake

DESCRIPTION_FILE, FORMAT_VERSION = "dataset.json", 1


def recognises(path: Path) -> bool:
    """Whether it is a folder with a ``dataset.json``."""
    return (path / DESCRIPTION_FILE).is_file()


def load_folder(path: Path, memory: int) -> LoadedFile:
    """Load the columns and verify them against the hash. If they take more than ``memory`` bytes,
    they are memory-mapped, and only their sizes are verified."""
    description = json.loads((path / DESCRIPTION_FILE).read_text())
    if description.get("version") != FORMAT_VERSION:
        raise Mistake(
            f"{DESCRIPTION_FILE} has version {description.get('version')}, but this Sterling reads "
            f"version {FORMAT_VERSION}. Update Sterling, or write the dataset again."
        )
    metadata = Metadata.from_json(description)
    files = {name: path / file for name, file in require_entry(description, ["columns"]).items()}
    for name, file in files.items():
        if not file.is_file():
            raise Mistake(f"The file {file.name} of column {name!r} is missing. Restore it.")
    arrays = {name: _map_file(file) for name, file in files.items()}
    size = sum(array.nbytes for array in arrays.values())
    mapped = size > memory
    if not mapped:
        arrays = {name: np.load(file, allow_pickle=False) for name, file in files.items()}
    lengths = np.array(arrays.pop("lengths"), np.int64)
    if len(lengths) != len(metadata.sources):
        raise Mistake(
            f"The columns have {len(lengths)} episodes, but {DESCRIPTION_FILE} states "
            f"{len(metadata.sources)}. Restore the folder."
        )
    block = Block(arrays, lengths, metadata.sources).checked()
    if not mapped and _content_hash(block, metadata) != metadata.hash:
        raise Mistake(f"{path} {HASH_MISMATCH}")
    return LoadedFile(block, metadata, mapped)


def read(path: Path, limit: int | None = None) -> Stream:
    """Open the dataset as a stream for converting and joining; it is memory-mapped, and its hash
    is not verified yet."""
    opened = load_folder(path, 0)
    block, metadata = opened.block, opened.metadata
    check_columns(block, metadata.obs_space, metadata.action_space)
    blocks = (block.cut(first, stop) for first, stop in block_ranges(block.lengths))
    size = sum(array.nbytes for array in block.arrays.values())
    known = (metadata.obs_space, metadata.action_space, metadata.facts)
    return Stream(*known, blocks, size, metadata.hash)


def write(dataset: Any, path: Path) -> None:
    """Write a dataset as such a folder."""
    write_blocks(dataset.obs_space, dataset.action_space, dataset.facts, dataset.blocks(), path)


def write_blocks(
    obs_space: Space, action_space: Space, facts: Facts, blocks: Iterable[Block], path: Path
) -> None:
    """Write a dataset block by block, with only one block in memory at a time."""
    path.mkdir(parents=True, exist_ok=True)
    remove_partial_files(path, untouched=STALE_SECONDS)
    digest, sources, columns = ContentHash(obs_space, action_space), [np.zeros(0, np.int32)], {}
    with contextlib.ExitStack() as open_files:
        for block in digest.add_each(blocks):
            sources.append(block.sources.astype(np.int32))
            for name, array in _with_lengths(block).items():
                if name not in columns:
                    column = _ColumnWriter(path, name, array)
                    columns[name] = open_files.enter_context(contextlib.closing(column))
                columns[name].append(array)
        if "reward" not in columns or not columns["reward"].count:
            raise Mistake("The dataset has no rows, so nothing was written.")
        files = {name: column.finish() for name, column in columns.items()}
    metadata = Metadata(obs_space, action_space, facts, np.concatenate(sources), digest.value)
    description = {"version": FORMAT_VERSION, "columns": files, **metadata.to_json()}
    flush_to_disk(path)
    with atomic_write(path / DESCRIPTION_FILE) as partial:
        partial.write_text(json.dumps(description, indent=1) + "\n")
    for old in path.glob("*.npy"):  # of the dataset that was replaced
        if old.name not in files.values():
            old.unlink()


class _ColumnWriter:
    """Write a ``.npy`` file of unknown length; its header leaves room for the final length."""

    def __init__(self, folder: Path, name: str, like: np.ndarray):
        self._name, self._dtype, self._shape = name, like.dtype, like.shape[1:]
        self._folder, self._sha, self.count = folder, hashlib.sha256(), 0
        word = re.sub(r"[^A-Za-z0-9_]+", ".", name)
        self._partial = folder / f".{word}.{_short_hash(name)}{PARTIAL_MARK}{os.getpid()}"
        self._file: BinaryIO = self._partial.open("wb")
        self._header()

    def append(self, array: np.ndarray) -> None:
        """Append entries; raise Mistake if their dtype or shape differs from those before."""
        if (array.dtype, array.shape[1:]) != (self._dtype, self._shape):
            raise Mistake(
                f"Column {self._name!r} changes from {self._dtype} {self._shape} to "
                f"{array.dtype} {array.shape[1:]}. Give all episodes one type and shape."
            )
        content = np.ascontiguousarray(array)
        self._sha.update(content.data if content.size else b"")
        content.tofile(self._file)
        self.count += len(array)

    def finish(self) -> str:
        """Complete the header, give the file its final name, and return the name."""
        self._file.seek(0)
        self._header()
        self._file.flush()
        os.fsync(self._file.fileno())
        word = re.sub(r"[^A-Za-z0-9_]+", ".", self._name)
        final = f"{word}-{_short_hash(self._name)}{self._sha.hexdigest()[:12]}.npy"
        self._partial.replace(self._folder / final)
        return final

    def close(self) -> None:
        """Close the file, and remove it if it was not finished."""
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def _header(self) -> None:
        shape = (self.count, *self._shape)
        descr = np.lib.format.dtype_to_descr(self._dtype)
        facts = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(self._file, facts)


def _short_hash(name: str) -> str:
    """Return eight digits that distinguish columns whose names are equal as file names."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _with_lengths(block: Block) -> Arrays:
    return {**block.arrays, "lengths": block.lengths.astype(np.int64)}


def _content_hash(block: Block, metadata: Metadata) -> str:
    digest = ContentHash(metadata.obs_space, metadata.action_space)
    digest.add(block)
    return digest.value


def _map_file(file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError:  # an empty array cannot be mapped
        return np.load(file, allow_pickle=False)
