"""What every format's file needs: one way to say that a file is damaged."""

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

from sterling.data.columns import Block
from sterling.data.facts import Passport
from sterling.disk import Unwritable
from sterling.types import Mistake

OTHER = (
    "does not hold what was written (its hash differs); restore it, or convert it with sterling "
    "data import --changed if you changed it yourself"
)
SHOWN = 12  # names of what there is instead of something
# what h5py, zipfile and NumPy raise over damaged files, of headers and of contents
DAMAGED = (
    *(OSError, KeyError, ValueError, EOFError, RuntimeError, OverflowError, SyntaxError),
    TypeError,
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError),
)


@dataclasses.dataclass(frozen=True)
class Opened:
    """A file's columns, and what is written beside them."""

    block: Block
    passport: Passport
    mapped: bool  # the columns are on disk and read where they are needed


@contextlib.contextmanager
def reading(path: Path, format: str) -> Iterator[None]:
    """Whatever a reader of files raises becomes one line that names the file."""
    try:
        yield
    except Mistake as error:
        if str(path) in str(error) or isinstance(error, Unwritable):
            raise
        raise Mistake(f"{path}: {error}") from error
    except MemoryError as error:
        said = f"memory does not suffice for {path}; free some, or raise its limit (ulimit)"
        raise Mistake(said) from error
    except DAMAGED as error:
        said = " ".join(str(error).split())[:160]
        raise Mistake(f"{path} cannot be read as {format}: {said}; restore it") from error


def needed(found: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The first of ``names`` that is there; raises Mistake naming what lacks."""
    wanted = list(names)
    for name in wanted:
        if name in found:
            return found[name]
    there = [*found][:SHOWN] + ["..."] * (len(found) > SHOWN)
    lacking = " or ".join(map(repr, wanted))
    raise Mistake(f"there is no array {lacking}; there are {', '.join(there) or 'none'}")
