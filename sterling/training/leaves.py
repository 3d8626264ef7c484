"""The arrays of a tree as one safetensors file, written and read leaf by leaf.

The safetensors library wants a whole tree in memory at once, stores arrays that are not
contiguous wrongly (0.8), and does not notice flipped bits. Its format is simple: a JSON header
with names, types, shapes and offsets, then the bytes. Any safetensors reader can open the file.

Leaves are arrays of any type, typed random keys (stored as the words they are made of) and Python
numbers. Functions are not stored: on reading, the template's are kept.
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

from sterling.disk import sync
from sterling.types import Mistake

CHUNK = 1 << 20  # bytes hashed and written at a time, or left out where they are zero: 1 MiB

# What safetensors calls NumPy's types; every other type is stored as bytes, in one more axis.
NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16",
    "uint32": "U32", "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16",
    "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip


class Entry(NamedTuple):
    """What is known of a leaf; of a typed key, the words it is made of."""

    name: str  # its path in the tree: agent/state/nets/policy/...
    dtype: str
    shape: tuple[int, ...]
    key: str | None = None  # the key's type as JAX prints it: key<fry>
    implementation: str | None = None  # the key's generator: threefry2x32
    sha256: str = ""

    @property
    def size(self) -> int:
        """Bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def kind(self) -> str:
        """For people."""
        return self.key or f"{self.dtype}{list(self.shape)}"


class Damaged(Exception):
    """A file that is not what was written."""


def describe(tree: PyTree, prefix: str = "") -> list[Entry]:
    """Every leaf that is stored, in the tree's order. Arrays are not read, only described."""
    found = [_describe(name, leaf) for name, leaf in _named(tree, prefix) if not callable(leaf)]
    names = [entry.name for entry in found]
    counts = Counter(["__metadata__", *names])
    if name := next((name for name, count in counts.items() if count > 1), None):
        raise Mistake(f"two leaves cannot both be saved as {name!r}: rename one of them")
    return found


def write(path: Path, tree: PyTree, entries: list[Entry]) -> list[Entry]:
    """Write the tree; on the disk when this returns. Returns the entries with checksums.

    What is zero, as the rows of a replay that are still free, takes no room on file systems that
    know holes; the file reads as if it were there.
    """
    values = (leaf for _, leaf in _named(tree, "") if not callable(leaf))
    written = []
    with open(path, "wb") as file:
        file.write(_header(entries))
        for entry, leaf in zip(entries, values, strict=True):
            digest = hashlib.sha256()
            for piece in _pieces(_on_host(leaf)):
                if np.any(piece):
                    file.write(piece)
                else:
                    file.seek(len(piece), os.SEEK_CUR)
                digest.update(piece)
            written.append(entry._replace(sha256=digest.hexdigest()))
        file.truncate()  # where it ends with a hole
    sync(path)
    return written


def read(path: Path, entries: list[Entry], template: PyTree, prefix: str = "") -> PyTree:
    """The leaves below ``prefix``, verified, in the shape of ``template``; others are not read.

    Raises :class:`Mistake` if the template asks for other leaves, :class:`Damaged` if the file
    is not what ``entries`` say.
    """
    _match(path.parent, entries, describe(template, prefix), prefix)
    stored = {entry.name: entry for entry in entries}
    named = list(_named(template, prefix))
    with open(path, "rb") as file:
        starts = _starts(file, entries)
        made = []
        for name, leaf in named:
            if callable(leaf):
                made.append(leaf)
                continue
            file.seek(starts[name])
            made.append(_like(leaf, stored[name], _fetch(file, stored[name])))
    return jax.tree.unflatten(jax.tree.structure(template), made)


def verify(path: Path, entries: list[Entry]) -> None:
    """Read everything; raises :class:`Damaged` if it is not what was written."""
    with open(path, "rb") as file:
        starts = _starts(file, entries)
        for entry in entries:
            file.seek(starts[entry.name])
            _fetch(file, entry)


def _named(tree: PyTree, prefix: str) -> Iterator[tuple[str, Any]]:
    """Leaves under the path to them."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        below = jax.tree_util.keystr(path, simple=True, separator="/")
        yield "/".join(part for part in (prefix, below) if part) or ".", leaf


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _describe(name: str, leaf: Any) -> Entry:
    if _is_key(leaf):
        words = jax.eval_shape(jax.random.key_data, leaf)
        kind = str(jax.random.key_impl(leaf)) if isinstance(leaf, jax.Array) else None
        return Entry(name, words.dtype.name, words.shape, str(leaf.dtype), kind)
    numbers = (bool, int, float, complex, np.generic)
    array = np.asarray(leaf) if isinstance(leaf, numbers) else leaf
    if not isinstance(array, (np.ndarray, jax.Array, jax.ShapeDtypeStruct)):
        raise Mistake(f"leaf {name} is a {type(leaf).__name__}: only arrays and numbers are saved")
    try:
        plain = np.dtype(array.dtype.name) == array.dtype.newbyteorder("=")
    except TypeError:
        plain = False
    if not plain or array.dtype.hasobject:
        raise Mistake(f"leaf {name} has type {array.dtype}: only arrays of numbers are saved")
    return Entry(name, array.dtype.name, tuple(array.shape))


def _header(entries: list[Entry]) -> bytes:
    """The head of a safetensors file: its length, then JSON padded to a multiple of 8 bytes."""
    parts: dict[str, Any] = {}
    start = 0
    for entry in entries:
        kind, shape = NAMES.get(entry.dtype), list(entry.shape)
        if kind is None:
            kind, shape = "U8", [*shape, np.dtype(entry.dtype).itemsize]
        end = start + entry.size
        parts[entry.name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(parts, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _on_host(leaf: Any) -> np.ndarray:
    """A leaf as a contiguous little-endian array; copied only where it is not one already."""
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.Array) and _is_away(leaf):
        # NumPy's copy of such an array would be kept as long as the array: copy by way of another.
        leaf = jax.device_put(leaf, jax.local_devices(backend="cpu")[0])
    array = np.asarray(leaf, order="C")
    return array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array


def _is_away(leaf: jax.Array) -> bool:
    """Whether an array lies elsewhere than in the memory of one CPU device."""
    devices = leaf.devices()
    return len(devices) > 1 or any(device.platform != "cpu" for device in devices)


def _pieces(array: np.ndarray) -> Iterator[memoryview]:
    """Views of the bytes of a contiguous array, to be read or filled."""
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK].data


def _match(path: Path, stored: list[Entry], wanted: list[Entry], prefix: str) -> None:
    """Whether what is wanted is what is stored, leaf by leaf."""
    remedy = "use the algorithm and configuration it was saved with"
    there = {entry.name: entry for entry in stored if _is_below(prefix, entry.name)}
    for entry in wanted:
        found = there.pop(entry.name, None)
        if found is None:
            raise Mistake(f"{path} has no leaf {entry.name} ({entry.kind}); {remedy}")
        if (found.dtype, found.shape, found.key) != (entry.dtype, entry.shape, entry.key):
            raise Mistake(
                f"{path}: leaf {entry.name} is {found.kind}, asked for is {entry.kind}; {remedy}"
            )
    if there:
        raise Mistake(f"{path}: leaf {next(iter(there))} has no place in this run; {remedy}")


def _is_below(prefix: str, name: str) -> bool:
    return not prefix or name == prefix or name.startswith(f"{prefix}/")


def _starts(file: BinaryIO, entries: list[Entry]) -> dict[str, int]:
    """Where each leaf's bytes begin, once header and length are what they must be."""
    header = _header(entries)
    length = os.fstat(file.fileno()).st_size
    total = len(header) + sum(entry.size for entry in entries)
    if length != total:
        raise Damaged(f"tree.safetensors has {length:,} bytes instead of {total:,}")
    if file.read(len(header)) != header:
        raise Damaged("tree.safetensors: header differs")
    ends = np.cumsum([len(header), *(entry.size for entry in entries)], dtype=np.int64)
    return {entry.name: int(start) for entry, start in zip(entries, ends[:-1], strict=True)}


def _fetch(file: BinaryIO, entry: Entry) -> np.ndarray:
    """One leaf's bytes from here, verified."""
    array = np.empty(entry.shape, np.dtype(entry.dtype))
    digest = hashlib.sha256()
    for piece in _pieces(array):
        if file.readinto(piece) != piece.nbytes:  # type: ignore[attr-defined]
            raise Damaged(f"leaf {entry.name}: the file ends too early")
        digest.update(piece)
    if digest.hexdigest() != entry.sha256:
        raise Damaged(f"leaf {entry.name}: checksum differs")
    return array


def _like(leaf: Any, entry: Entry, value: np.ndarray) -> Any:
    """A value as the kind of thing that the template has in its place."""
    if entry.key is not None:
        return jax.random.wrap_key_data(jax.device_put(value), impl=entry.implementation)
    if isinstance(leaf, (bool, int, float, complex)):
        return value.item()
    if isinstance(leaf, np.generic):
        return value[()]
    return value if isinstance(leaf, np.ndarray) else _on_device(leaf, value)


def _on_device(leaf: jax.Array | jax.ShapeDtypeStruct, value: np.ndarray) -> jax.Array:
    """A JAX array where and how the template's is."""
    with jax.enable_x64(value.dtype in (np.int64, np.uint64, np.float64, np.complex128)):
        if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1:
            return jax.device_put(value, leaf.sharding)
        if not leaf.weak_type:
            return jax.device_put(value)  # unlike jnp.array, which copies twice
        # A weak type is part of what a compiled program expects.
        zeros = jnp.broadcast_to(jnp.asarray(value.dtype.type(0).item()), value.shape)
        return zeros.at[...].set(value)
