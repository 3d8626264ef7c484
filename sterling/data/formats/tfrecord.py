"""Read TensorFlow's record files of ``tf.train.Example`` messages, without TensorFlow.

A record is its length (8 bytes, little-endian), the checksum of the length, the bytes, and their
checksum. Checksums are CRC-32C, rotated by 15 bits and shifted by a constant (TensorFlow,
``core/lib/io/record_writer.h`` and ``core/lib/hash/crc32c.h``). Reading needs protobuf and
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

CHECKSUM_SHIFT = 0xA282EAD8
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
"""  # protobuf encodes a map as a repeated message of key and value
NUMBER_TYPES = {"float_list": np.float32, "int64_list": np.int64}


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a file; raise Mistake if one is cut off or its checksum is wrong."""
    number = 0
    with path.open("rb") as file:
        while head := file.read(12):
            length = _verify_checksum(head, 8, path, number)
            size = struct.unpack("<Q", length)[0]
            if size > path.stat().st_size:
                raise Mistake(f"{path.name}: record {number} is cut off. Download the file again.")
            yield _verify_checksum(file.read(size + 4), size, path, number)
            number += 1


def _verify_checksum(found: bytes, size: int, path: Path, number: int) -> bytes:
    """Return the first ``size`` bytes after verifying the checksum that follows them."""
    if len(found) != size + 4:
        raise Mistake(f"{path.name}: record {number} is cut off. Download the file again.")
    value, (expected,) = found[:size], struct.unpack("<I", found[size:])
    if masked_checksum(value) != expected:
        raise Mistake(f"{path.name}: record {number} is damaged. Download the file again.")
    return value


def masked_checksum(value: bytes) -> int:
    """Return the masked CRC-32C of ``value``, as TensorFlow writes it."""
    found: int = _import_modules()[0].value(value)
    return ((found >> 15 | found << 17) + CHECKSUM_SHIFT) & 0xFFFFFFFF


def parse_example(record: bytes) -> dict[str, Any]:
    """Parse a record as feature name -> numbers ``(n,)`` (int64 or float32) or a list of bytes;
    raise Mistake if it is not a ``tf.train.Example``."""
    made = empty_example()
    from google.protobuf.message import DecodeError

    try:
        made.ParseFromString(record)
    except DecodeError as error:
        message = f"The record is not a tf.train.Example ({error}). Download the file again."
        raise Mistake(message) from error
    found = {}
    for entry in made.features.feature:
        kind = entry.value.WhichOneof("kind")
        if kind is None:
            continue
        values = getattr(entry.value, kind).value
        numbers = kind in NUMBER_TYPES
        found[entry.key] = np.array(values, NUMBER_TYPES[kind]) if numbers else list(values)
    return found


def empty_example() -> Any:
    """Return an empty ``tf.train.Example``."""
    return _import_modules()[1]()


@functools.cache
def _import_modules() -> tuple[Any, Any]:
    """Return the module for checksums and the class of ``tf.train.Example``."""
    try:
        import google_crc32c
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
    except ImportError as error:
        raise Mistake(
            "Reading RLDS needs the packages protobuf and google-crc32c. Install them: "
            'pip install "sterling-rl[rlds]"'
        ) from error
    pool = descriptor_pool.DescriptorPool()  # separate: TensorFlow may register the same names
    pool.Add(text_format.Parse(SCHEMA, descriptor_pb2.FileDescriptorProto()))
    described = pool.FindMessageTypeByName("tensorflow.Example")
    return google_crc32c, message_factory.GetMessageClass(described)
