"""Arrays in an ``.npz``, read where they are needed: it may be larger than memory.

What an array is stands at the head of its member; its rows are read in the order in which they
lie, as they are asked for. To go back is to begin that member anew.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from sterling.data import memory

AT_ONCE = 1 << 24  # bytes
HEADER = 10_000  # the longest that NumPy takes, in bytes


class Member:
    """An array of an archive, to be sliced along its first axis as an HDF5 dataset is; every slice
    is a fresh array. Reading raises what ``zipfile`` raises over damage, ValueError for what ends
    too early."""

    def __init__(self, archive: zipfile.ZipFile, name: str):
        self._archive, self.name = archive, name.removesuffix(".npy")
        self._file: Any = archive.open(name)  # typed as one that cannot fill an array
        self.shape, self._turned, self.dtype = _header(self._file)
        self._start = self._file.tell()
        self._row = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=object))

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Of all its numbers."""
        return len(self) * self._row

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        if self._turned:  # by columns, so that every row lies all over it
            return self.whole()[rows]
        low, high, _ = rows.indices(len(self))
        return self._read(low * self._row, (max(high - low, 0), *self.shape[1:]))

    def whole(self) -> np.ndarray:
        """All of it."""
        if self._turned:
            return self._read(0, self.shape[::-1]).T
        return self._read(0, self.shape)

    def _read(self, at: int, shape: tuple[int, ...]) -> np.ndarray:
        """So much from byte ``at`` of its content on."""
        if self.dtype.hasobject:
            raise ValueError(f"array {self.name!r} holds Python objects")
        size = int(np.prod(shape, dtype=object)) * self.dtype.itemsize
        memory.check(size, f"array {self.name!r}")
        made = np.empty(shape, self.dtype)
        into = made.reshape(-1).view(np.uint8).data if made.size else memoryview(b"")
        self._file.seek(self._start + at)
        for low in range(0, len(into), AT_ONCE):
            part = into[low : low + AT_ONCE]
            if self._file.readinto(part) != len(part):
                raise ValueError(f"array {self.name!r} ends too early")
        return made


def members(path: Path) -> dict[str, Member]:
    """The arrays of an archive by their names; it stays open until the last one is let go."""
    archive = zipfile.ZipFile(path)
    return {name: Member(archive, member) for name, member in _arrays(archive).items()}


def names(path: Path) -> set[str]:
    """The names of an archive's arrays."""
    with zipfile.ZipFile(path) as archive:
        return set(_arrays(archive))


def _arrays(archive: zipfile.ZipFile) -> dict[str, str]:
    """The names of an archive's arrays, and those of their members."""
    found = [name for name in archive.namelist() if name.endswith(".npy")]
    return {name.removesuffix(".npy"): name for name in found}


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it lies by columns, and type; ValueError for a header that is none."""
    first = np.lib.format.read_magic(file) == (1, 0)
    at, (kind, count) = file.tell(), ("<H", 2) if first else ("<I", 4)
    if struct.unpack(kind, file.read(count))[0] > HEADER:  # NumPy would read all of it
        raise ValueError("its header is too long")
    file.seek(at)
    read = np.lib.format
    return read.read_array_header_1_0(file) if first else read.read_array_header_2_0(file)
