"""Pickle a user's code for worker processes, so that a crash there still names file and line.

cloudpickle 3.1.3 writes ``<dynamic-code>`` in place of the file of every function that it carries
by value, which makes a traceback in a worker useless. Nothing pickled here is written to disk.
"""

from __future__ import annotations

import io
import types
from typing import Any

import cloudpickle

NAMELESS = "<dynamic-code>"


def dumps(value: Any) -> bytes:
    """Return ``value`` pickled, functions and classes of scripts included, to be read by
    ``cloudpickle.loads``."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):
    """cloudpickle's own, with the file name of every code object kept."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, types.CodeType):
            return super().reducer_override(obj)
        make, arguments = self.dispatch_table[types.CodeType](obj)
        named = (obj.co_filename if part == NAMELESS else part for part in arguments)
        return make, tuple(named)
