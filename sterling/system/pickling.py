"""Pickle user code for worker processes so that tracebacks there still name file and line.

cloudpickle 3.1.3 writes ``<dynamic-code>`` as the file of every function that it pickles by value,
which makes tracebacks in a worker useless. Nothing pickled here is written to disk.
"""

from __future__ import annotations

import io
import types
from typing import Any

import cloudpickle

UNKNOWN_FILE = "<dynamic-code>"


def dumps(value: Any) -> bytes:
    """Pickle ``value``, with functions and classes of scripts, for ``cloudpickle.loads``."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):
    """cloudpickle's Pickler, but it keeps the file name of every code object."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, types.CodeType):
            return super().reducer_override(obj)
        make, arguments = self.dispatch_table[types.CodeType](obj)
        named = (obj.co_filename if part == UNKNOWN_FILE else part for part in arguments)
        return make, tuple(named)
