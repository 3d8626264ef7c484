"""Report damaged dataset files in one message, whatever their format."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sterling.data.dataset_metadata import Metadata
from sterling.data.episode_columns import Block
from sterling.system.atomic_files import Unwritable
from sterling.system.shown_values import short_text
from sterling.types import Mistake

HASH_MISMATCH = (
    "was changed after it was written: its numbers do not match its hash. Restore it; or, if you "
    "changed it yourself, convert it with: sterling data import --changed"
)
MAX_NAMES_SHOWN = 12  # names listed in a message about a missing one
# what h5py, zipfile and NumPy raise for damaged files: in headers, then in contents
DAMAGE_ERRORS = (
    *(OSError, KeyError, ValueError, EOFError, RuntimeError, OverflowError, SyntaxError),
    TypeError,
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError),
)


@dataclasses.dataclass(frozen=True)
class LoadedFile:
    """The columns of a file, and its metadata."""

    block: Block
    metadata: Metadata
    mapped: bool  # whether the columns are memory-mapped


@contextlib.contextmanager
def report_damage(path: Path, format: str) -> Iterator[None]:
    """Context manager that turns the errors of file readers into a Mistake that names the file."""
    try:
        yield
    except Mistake as error:
        if str(path) in str(error) or isinstance(error, Unwritable):
            raise
        raise Mistake(f"{path}: {error}") from error
    except MemoryError as error:
        message = f"Memory does not suffice for {path}. Free some, or raise the limit (ulimit)."
        raise Mistake(message) from error
    except DAMAGE_ERRORS as error:
        reason = short_text(str(error))
        raise Mistake(f"{path} cannot be read as {format} ({reason}). Restore it.") from error


def require_entry(found: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the entry under the first of ``names`` that exists; raise Mistake if none does."""
    wanted = list(names)
    for name in wanted:
        if name in found:
            return found[name]
    there = [*found][:MAX_NAMES_SHOWN] + ["..."] * (len(found) > MAX_NAMES_SHOWN)
    lacking = " or ".join(map(repr, wanted))
    raise Mistake(f"The array {lacking} is missing. The file has: {', '.join(there) or 'none'}.")
