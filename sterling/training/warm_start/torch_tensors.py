"""Read the tensors of a file that ``torch.save`` wrote, without torch and without running its code.

Such a file is a zip with a pickle, which names the tensors, and one member for each storage. A
pickle may call anything. So only what a dict of tensors needs can be called here, and each of these
names stands for a function of this file.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterling.types import Mistake

STORAGE_TYPES = {
    "FloatStorage": np.float32, "DoubleStorage": np.float64, "HalfStorage": np.float16,
    "LongStorage": np.int64, "IntStorage": np.int32, "BoolStorage": np.bool_,
}  # fmt: skip
MAX_BYTES = 1 << 31  # of all members together: 2 GiB


def read_tensors(content: bytes, name: str) -> dict[str, np.ndarray]:
    """Return the tensors of a dict that was saved with torch 1.6 or later; entries of other types
    are left out. Raise Mistake, which names the file ``name``, for anything else."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _read_archive(archive)
    except Mistake as error:
        raise Mistake(f"{name}: {error}") from error
    except Exception as error:  # a damaged pickle may raise anything
        why = f"{type(error).__name__}: {error}"
        raise Mistake(f"{name} is no file of torch 1.6 or later, or damaged ({why}).") from error


def _read_archive(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
        raise Mistake("the tensors are larger than 2 GiB.")
    members = {path.partition("/")[2]: path for path in archive.namelist()}
    if "byteorder" in members and archive.read(members["byteorder"]) != b"little":
        raise Mistake("the tensors are big-endian. Save the model again on another machine.")

    def read_storage(key: str) -> bytes:
        return archive.read(members[f"data/{key}"])

    reader = _TensorReader(io.BytesIO(archive.read(members["data.pkl"])), read_storage)
    found = reader.load()
    if not isinstance(found, dict):
        raise Mistake("it holds no dict of tensors.")
    return {name: x for name, x in found.items() if isinstance(x, np.ndarray)}


class _TensorReader(pickle.Unpickler):
    """An unpickler that can build dicts, numbers and tensors, and nothing else."""

    def __init__(self, file: io.BytesIO, read_storage: Callable[[str], bytes]):
        super().__init__(file)
        self._read_storage = read_storage

    def find_class(self, module: str, name: str) -> Any:
        """Return the function or type for a name in the pickle; raise Mistake for all others."""
        if module == "torch" and name in STORAGE_TYPES:
            return np.dtype(STORAGE_TYPES[name])
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
        }
        if (module, name) not in known:
            raise Mistake(
                f"its pickle asks for {module}.{name}, which is no tensor and is not run."
            )
        return known[module, name]

    def persistent_load(self, given: Any) -> np.ndarray:
        """Return a storage: one row of numbers."""
        kind, dtype, key, _, count = given
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise Mistake("it holds something that is no tensor.")
        return np.frombuffer(self._read_storage(str(key)), dtype, count=int(count))


def _tensor(
    storage: np.ndarray, offset: int, shape: Sequence[int], strides: Sequence[int], *_: Any
) -> np.ndarray:
    """Return a copy of the tensor that lies in a storage at an offset, with strides in numbers."""
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides), default=0) < 0 or (0 not in shape and last >= storage.size):
        raise Mistake("a tensor reaches beyond its storage.")
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(shape), steps).copy()


def _parameter(tensor: np.ndarray, *_: Any) -> np.ndarray:
    return tensor
