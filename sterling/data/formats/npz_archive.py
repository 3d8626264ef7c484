"""Read arrays of an ``.npz`` slice by slice, since the archive may be larger than memory.

Each member of the zip file begins with a header that states the array's shape and type. Rows are
read in the order in which they are stored; reading an earlier row restarts the member.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from sterling.data import available_memory

CHUNK_BYTES = 1 << 24  # bytes
MAX_HEADER_BYTES = 10_000  # bytes; the longest header that NumPy accepts


class ArrayMember:
    """An array in an npz archive that is sliced along its first axis, as an HDF5 dataset is.

    Every slice is a new array. Reading raises the errors of ``zipfile`` for damaged files, and
    ValueError for arrays that end too early.
    """

    def __init__(self, archive: zipfile.ZipFile, name: str):
        self._archive, self.name = archive, name.removesuffix(".npy")
        self._file: Any = archive.open(name)  # its declared type has no readinto
        self.shape, self._turned, self.dtype = _read_header(self._file)
        self._start = self._file.tell()
        self._row = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=object))

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the size of the array in bytes."""
        return len(self) * self._row

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        if self._turned:  # Fortran order: every row is spread over the whole array
            return self.whole()[rows]
        low, high, _ = rows.indices(len(self))
        return self._read(low * self._row, (max(high - low, 0), *self.shape[1:]))

    def whole(self) -> np.ndarray:
        """Read the whole array."""
        if self._turned:
            return self._read(0, self.shape[::-1]).T
        return self._read(0, self.shape)

    def _read(self, at: int, shape: tuple[int, ...]) -> np.ndarray:
        """Read an array of ``shape`` from byte ``at`` of the content on."""
        if self.dtype.hasobject:
            raise ValueError(f"the array {self.name!r} holds Python objects")
        size = int(np.prod(shape, dtype=object)) * self.dtype.itemsize
        available_memory.check_fits(size, f"array {self.name!r}")
        made = np.empty(shape, self.dtype)
        into = made.reshape(-1).view(np.uint8).data if made.size else memoryview(b"")
        self._file.seek(self._start + at)
        for low in range(0, len(into), CHUNK_BYTES):
            part = into[low : low + CHUNK_BYTES]
            if self._file.readinto(part) != len(part):
                raise ValueError(f"the array {self.name!r} ends too early")
        return made


def open_arrays(path: Path) -> dict[str, ArrayMember]:
    """Open the arrays of an archive, by name; the file stays open until the last is deleted."""
    archive = zipfile.ZipFile(path)
    return {name: ArrayMember(archive, member) for name, member in _member_names(archive).items()}


def array_names(path: Path) -> set[str]:
    """Return the names of the arrays in an archive."""
    with zipfile.ZipFile(path) as archive:
        return set(_member_names(archive))


def _member_names(archive: zipfile.ZipFile) -> dict[str, str]:
    """Map the names of an archive's arrays to the names of their members in the zip file."""
    found = [name for name in archive.namelist() if name.endswith(".npy")]
    return {name.removesuffix(".npy"): name for name in found}


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read an array's header: shape, whether in Fortran order, and dtype; ValueError if damaged."""
    first = np.lib.format.read_magic(file) == (1, 0)
    at, (kind, count) = file.tell(), ("<H", 2) if first else ("<I", 4)
    if struct.unpack(kind, file.read(count))[0] > MAX_HEADER_BYTES:  # NumPy would read all of it
        raise ValueError("the header of an array is too long")
    file.seek(at)
    read = np.lib.format
    return read.read_array_header_1_0(file) if first else read.read_array_header_2_0(file)
