"""Write and read the arrays of a tree as one safetensors file, leaf by leaf.

The safetensors library wants a whole tree in memory at once, stores arrays that are not
contiguous wrongly (0.8), and does not notice flipped bits. Its format is simple: a JSON header
with names, types, shapes and offsets, then the bytes. Any safetensors reader can open the file.

Leaves are arrays of any type, typed random keys (stored as their integers) and Python numbers.
Functions are not stored: on reading, the template's are kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from sterling.problem.joined_path import named_leaves
from sterling.system.atomic_files import flush_to_disk
from sterling.training.saving.added_leaves import added_leaves, earlier_value
from sterling.types import Mistake

CHUNK = 1 << 20  # bytes hashed and written at a time, or skipped if they are zero: 1 MiB

# safetensors' names of NumPy's types; any other type is stored as bytes, with one more axis
SAFETENSORS_TYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16",
    "uint32": "U32", "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16",
    "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip


class Entry(NamedTuple):
    """A leaf's name, type, shape and checksum; for a typed key, those of its integers."""

    name: str  # its path in the tree: agent/state/nets/policy/...
    dtype: str
    shape: tuple[int, ...]
    key: str | None = None  # the key's type as JAX prints it: key<fry>
    implementation: str | None = None  # the key's generator: threefry2x32
    sha256: str = ""

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def kind(self) -> str:
        """Return type and shape as text for messages."""
        return self.key or f"{self.dtype}{list(self.shape)}"


class DamagedFile(Exception):
    """A file whose content differs from what was written."""


def describe_leaves(tree: PyTree, prefix: str = "") -> list[Entry]:
    """Return the entries of all leaves to be stored, in the tree's order, without their data."""
    found = [
        _describe_leaf(name, leaf)
        for name, leaf in _leaves_by_path(tree, prefix)
        if not callable(leaf)
    ]
    names = [entry.name for entry in found]
    counts = Counter(["__metadata__", *names])
    if name := next((name for name, count in counts.items() if count > 1), None):
        raise Mistake(f"two leaves have the name {name!r} and cannot be saved. Rename one of them.")
    return found


def write(path: Path, tree: PyTree, entries: list[Entry]) -> list[Entry]:
    """Write the tree, flush it to the disk, and return the entries with checksums.

    Zeros, such as empty rows of a replay buffer, become holes in the file: they take no space on
    file systems that support sparse files, and read as zeros.
    """
    values = (leaf for _, leaf in _leaves_by_path(tree, "") if not callable(leaf))
    written = []
    with open(path, "wb") as file:
        file.write(_header(entries))
        for entry, leaf in zip(entries, values, strict=True):
            digest = hashlib.sha256()
            for piece in _byte_chunks(_to_host(leaf)):
                if np.any(piece):
                    file.write(piece)
                else:
                    file.seek(len(piece), os.SEEK_CUR)
                digest.update(piece)
            written.append(entry._replace(sha256=digest.hexdigest()))
        file.truncate()  # sets the length if the file ends with a hole
    flush_to_disk(path)
    return written


def read(path: Path, entries: list[Entry], template: PyTree, prefix: str = "") -> PyTree:
    """Read and verify the leaves below ``prefix``, and return them in the form of ``template``.

    Raise :class:`Mistake` if the template has other leaves, except those that older files lack
    (``added_leaves.py``), and :class:`DamagedFile` if the file is not what ``entries`` say.
    """
    stored = {entry.name: entry for entry in entries}
    wanted = {entry.name: entry for entry in describe_leaves(template, prefix)}
    zero = {name: wanted.pop(name) for name in added_leaves(stored, wanted)}
    _check_leaves(path.parent, entries, list(wanted.values()), prefix)
    named = list(_leaves_by_path(template, prefix))
    with open(path, "rb") as file:
        starts = _leaf_offsets(file, entries)

        def read_leaf(name: str) -> np.ndarray:
            file.seek(starts[name])
            return _read_leaf(file, stored[name])

        made = []
        for name, leaf in named:
            if callable(leaf):
                made.append(leaf)
                continue
            if name in zero:
                blank = np.zeros(zero[name].shape, zero[name].dtype)
                value = earlier_value(name, blank, read_leaf)
                made.append(_convert_to_template(leaf, zero[name], value))
                continue
            made.append(_convert_to_template(leaf, stored[name], read_leaf(name)))
    return jax.tree.unflatten(jax.tree.structure(template), made)


def read_below(path: Path, entries: list[Entry], prefix: str) -> dict[str, np.ndarray]:
    """Read and verify the leaves below ``prefix``, and return them by what follows it in their
    names. Raise :class:`DamagedFile` if the file is not what ``entries`` say."""
    with open(path, "rb") as file:
        starts = _leaf_offsets(file, entries)
        found = {}
        for entry in entries:
            if entry.name.startswith(f"{prefix}/"):
                file.seek(starts[entry.name])
                found[entry.name.removeprefix(f"{prefix}/")] = _read_leaf(file, entry)
    return found


def verify(path: Path, entries: list[Entry]) -> None:
    """Read all leaves; raise :class:`DamagedFile` if the file is not what was written."""
    with open(path, "rb") as file:
        starts = _leaf_offsets(file, entries)
        for entry in entries:
            file.seek(starts[entry.name])
            _read_leaf(file, entry)


def _leaves_by_path(tree: PyTree, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves with their paths, ``prefix`` included."""
    for below, leaf in named_leaves(tree):
        yield "/".join(part for part in (prefix, below) if part) or ".", leaf


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _describe_leaf(name: str, leaf: Any) -> Entry:
    if _is_key(leaf):
        words = jax.eval_shape(jax.random.key_data, leaf)
        kind = str(jax.random.key_impl(leaf)) if isinstance(leaf, jax.Array) else None
        return Entry(name, words.dtype.name, words.shape, str(leaf.dtype), kind)
    numbers = (bool, int, float, complex, np.generic)
    array = np.asarray(leaf) if isinstance(leaf, numbers) else leaf
    if not isinstance(array, (np.ndarray, jax.Array, jax.ShapeDtypeStruct)):
        raise Mistake(
            f"leaf {name} is a {type(leaf).__name__}, which cannot be saved. Use arrays or numbers."
        )
    try:
        plain = np.dtype(array.dtype.name) == array.dtype.newbyteorder("=")
    except TypeError:
        plain = False
    if not plain or array.dtype.hasobject:
        raise Mistake(f"leaf {name} has type {array.dtype}, which cannot be saved. Use numbers.")
    return Entry(name, array.dtype.name, tuple(array.shape))


def _header(entries: list[Entry]) -> bytes:
    """Return a safetensors header: its length, then JSON padded to a multiple of 8 bytes."""
    parts: dict[str, Any] = {}
    start = 0
    for entry in entries:
        kind, shape = SAFETENSORS_TYPES.get(entry.dtype), list(entry.shape)
        if kind is None:
            kind, shape = "U8", [*shape, np.dtype(entry.dtype).itemsize]
        end = start + entry.size
        parts[entry.name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(parts, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _to_host(leaf: Any) -> np.ndarray:
    """Return a leaf as a contiguous little-endian array on the host; copied only if necessary."""
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.Array) and _is_off_cpu(leaf):
        # JAX would keep NumPy's copy of such an array as long as the array: copy another one
        leaf = jax.device_put(leaf, jax.local_devices(backend="cpu")[0])
    array = np.asarray(leaf, order="C")
    return array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array


def _is_off_cpu(leaf: jax.Array) -> bool:
    """Whether an array is not in the memory of one CPU device."""
    devices = leaf.devices()
    return len(devices) > 1 or any(device.platform != "cpu" for device in devices)


def _byte_chunks(array: np.ndarray) -> Iterator[memoryview]:
    """Yield views of a contiguous array's bytes, to be read or filled."""
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK].data


def _check_leaves(path: Path, stored: list[Entry], wanted: list[Entry], prefix: str) -> None:
    """Raise Mistake unless the wanted leaves are exactly the stored ones below ``prefix``."""
    remedy = "use the algorithm and configuration it was saved with"
    there = {entry.name: entry for entry in stored if _is_below(prefix, entry.name)}
    for entry in wanted:
        found = there.pop(entry.name, None)
        if found is None:
            raise Mistake(f"{path} has no leaf {entry.name} ({entry.kind}); {remedy}")
        if (found.dtype, found.shape, found.key) != (entry.dtype, entry.shape, entry.key):
            raise Mistake(
                f"{path}: leaf {entry.name} is {found.kind}, this run has {entry.kind}; {remedy}"
            )
    if there:
        raise Mistake(f"{path}: leaf {next(iter(there))} does not exist in this run; {remedy}")


def _is_below(prefix: str, name: str) -> bool:
    return not prefix or name == prefix or name.startswith(f"{prefix}/")


def _leaf_offsets(file: BinaryIO, entries: list[Entry]) -> dict[str, int]:
    """Return the offset of each leaf's bytes; raise DamagedFile for a wrong header or length."""
    header = _header(entries)
    length = os.fstat(file.fileno()).st_size
    total = len(header) + sum(entry.size for entry in entries)
    if length != total:
        raise DamagedFile(f"tree.safetensors has {length:,} bytes instead of {total:,}")
    if file.read(len(header)) != header:
        raise DamagedFile("tree.safetensors: header differs")
    ends = np.cumsum([len(header), *(entry.size for entry in entries)], dtype=np.int64)
    return {entry.name: int(start) for entry, start in zip(entries, ends[:-1], strict=True)}


def _read_leaf(file: BinaryIO, entry: Entry) -> np.ndarray:
    """Read one leaf at the file's position, and verify its checksum."""
    array = np.empty(entry.shape, np.dtype(entry.dtype))
    digest = hashlib.sha256()
    for piece in _byte_chunks(array):
        if file.readinto(piece) != piece.nbytes:  # type: ignore[attr-defined]
            raise DamagedFile(f"leaf {entry.name}: the file ends too early")
        digest.update(piece)
    if digest.hexdigest() != entry.sha256:
        raise DamagedFile(f"leaf {entry.name}: checksum differs")
    return array


def _convert_to_template(leaf: Any, entry: Entry, value: np.ndarray) -> Any:
    """Return a loaded value converted to the template leaf's type: key, number or array."""
    if entry.key is not None:
        return jax.random.wrap_key_data(jax.device_put(value), impl=entry.implementation)
    if isinstance(leaf, (bool, int, float, complex)):
        return value.item()
    if isinstance(leaf, np.generic):
        return value[()]
    return value if isinstance(leaf, np.ndarray) else array_like(leaf, value)


def array_like(leaf: jax.Array | jax.ShapeDtypeStruct, value: np.ndarray) -> jax.Array:
    """Return ``value`` as a JAX array with the devices and the weak type of ``leaf``."""
    with jax.enable_x64(value.dtype in (np.int64, np.uint64, np.float64, np.complex128)):
        if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1:
            return jax.device_put(value, leaf.sharding)
        if not leaf.weak_type:
            return jax.device_put(value)  # unlike jnp.array, which copies twice
        # a compiled program expects the weak type as well
        zeros = jnp.broadcast_to(jnp.asarray(value.dtype.type(0).item()), value.shape)
        return zeros.at[...].set(value)
