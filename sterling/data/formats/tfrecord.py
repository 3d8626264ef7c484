"""TensorFlow's record files without TensorFlow: framed ``tf.train.Example`` messages.

A record is its length (8 bytes, little-endian), a checksum of that, its bytes, and a checksum of
them; checksums are CRC-32C, rotated by 15 bits and shifted by a constant (TensorFlow,
``core/lib/io/record_writer.h`` and ``core/lib/hash/crc32c.h``). Reading takes protobuf and
google-crc32c: ``pip install "sterling-rl[rlds]"``.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sterling.types import Mistake

SHIFT = 0xA282EAD8
SCHEMA = """
name: "example.proto" package: "tensorflow" syntax: "proto3"
message_type {
  name: "BytesList"
  field { name: "value" number: 1 type: TYPE_BYTES label: LABEL_REPEATED }
}
message_type {
  name: "FloatList"
  field { name: "value" number: 1 type: TYPE_FLOAT label: LABEL_REPEATED }
}
message_type {
  name: "Int64List"
  field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED }
}
message_type {
  name: "Feature"
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: "BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: "FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: "Int64List" oneof_index: 0 }
  oneof_decl { name: "kind" }
}
message_type {
  name: "Entry"
  field { name: "key" number: 1 type: TYPE_STRING }
  field { name: "value" number: 2 type: TYPE_MESSAGE type_name: "Feature" }
}
message_type {
  name: "Features"
  field { name: "feature" number: 1 type: TYPE_MESSAGE type_name: "Entry" label: LABEL_REPEATED }
}
message_type {
  name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: "Features" }
}
"""  # a map is, on the wire, a repeated message of key and value
KINDS = {"float_list": np.float32, "int64_list": np.int64}


def records(path: Path) -> Iterator[bytes]:
    """The records of a file; raises Mistake where one is cut off or its checksum is wrong."""
    number = 0
    with path.open("rb") as file:
        while head := file.read(12):
            length = _checked(head, 8, path, number)
            size = struct.unpack("<Q", length)[0]
            if size > path.stat().st_size:
                raise Mistake(f"{path.name}: record {number} is cut off; fetch the file again")
            yield _checked(file.read(size + 4), size, path, number)
            number += 1


def _checked(found: bytes, size: int, path: Path, number: int) -> bytes:
    """The first ``size`` bytes, whose checksum follows them."""
    if len(found) != size + 4:
        raise Mistake(f"{path.name}: record {number} is cut off; fetch the file again")
    value, (said,) = found[:size], struct.unpack("<I", found[size:])
    if masked(value) != said:
        raise Mistake(f"{path.name}: record {number} is damaged; fetch the file again")
    return value


def masked(value: bytes) -> int:
    """The checksum as it is written."""
    found: int = _modules()[0].value(value)
    return ((found >> 15 | found << 17) + SHIFT) & 0xFFFFFFFF


def example(record: bytes) -> dict[str, Any]:
    """Name -> numbers ``(n,)``, int64 or float32, or a list of bytes; raises Mistake for a record
    that is no ``tf.train.Example``."""
    made = message()
    from google.protobuf.message import DecodeError

    try:
        made.ParseFromString(record)
    except DecodeError as error:
        raise Mistake(f"it holds no tf.train.Example ({error})") from error
    found = {}
    for entry in made.features.feature:
        kind = entry.value.WhichOneof("kind")
        if kind is None:
            continue
        values = getattr(entry.value, kind).value
        numbers = kind in KINDS
        found[entry.key] = np.array(values, KINDS[kind]) if numbers else list(values)
    return found


def message() -> Any:
    """An empty ``tf.train.Example``."""
    return _modules()[1]()


@functools.cache
def _modules() -> tuple[Any, Any]:
    """The checksum's module and the message's class."""
    try:
        import google_crc32c
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
    except ImportError as error:
        raise Mistake(
            "reading RLDS takes two packages more, protobuf and google-crc32c: "
            'pip install "sterling-rl[rlds]"'
        ) from error
    pool = descriptor_pool.DescriptorPool()  # its own: TensorFlow may be there with the same names
    pool.Add(text_format.Parse(SCHEMA, descriptor_pb2.FileDescriptorProto()))
    described = pool.FindMessageTypeByName("tensorflow.Example")
    return google_crc32c, message_factory.GetMessageClass(described)
