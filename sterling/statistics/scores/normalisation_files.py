"""Read a user's own table of reference scores: what counts as 0 and as 1 in each environment.

| file | content |
|---|---|
| CSV | the columns ``environment``, ``low`` and ``high`` (or ``task``; ``random``; ``expert``) |
| JSON | ``{environment: [low, high]}``, ``{environment: {"low": x, "high": y}}``, |
| | or a list of objects with the names of the CSV's columns |
| JSON | one of these under "scores", beside "name", "meaning" and "source" |
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling.lookup import user_imports
from sterling.system.shown_values import shown_value
from sterling.types import Mistake

NAMES = {
    "environment": ("environment", "env", "env_id", "task", "world", "name"),
    "low": ("low", "random", "min", "zero"),
    "high": ("high", "expert", "max", "one"),
}
FORM = "a CSV with the columns environment, low and high, or JSON {environment: [low, high]}"
SUFFIXES = (".csv", ".json")

References = dict[str, tuple[float, float]]


def is_table_file(word: str) -> bool:
    """Whether a word names a file rather than a table that comes with Sterling."""
    return word.lower().endswith(SUFFIXES) or "/" in word


def read_references(path: Path) -> tuple[References, dict[str, str]]:
    """Return each environment's references, and what the file says of itself ("name", "meaning",
    "source"). Raises Mistake for a file of another form, and for equal references."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise Mistake(f"{path} cannot be read ({reason}); give {FORM}") from error
    about: dict[str, str] = {}
    if path.suffix.lower() == ".json":
        try:
            stored = json.loads(text)
        except ValueError as error:
            raise Mistake(f"{path} is no JSON ({error}); give {FORM}") from error
        if isinstance(stored, dict) and isinstance(stored.get("scores"), dict | list):
            about = {key: str(stored[key]) for key in ("name", "meaning", "source")
                     if key in stored}  # fmt: skip
            stored = stored["scores"]
        rows = _json_rows(stored, path)
    else:
        rows = _csv_rows(text, path)
    found: References = {}
    for written, low, high in rows:
        name = user_imports.short_name(written.strip())
        if name in found:
            raise Mistake(f"{path} names {name} twice; leave one out")
        found[name] = _checked(name, low, high, path)
    if not found:
        raise Mistake(f"{path} names no environment; give {FORM}")
    return found, about


def _json_rows(stored: Any, path: Path) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(stored, list):
        yield from (_named_entries(entry, path) for entry in stored)
        return
    if not isinstance(stored, dict):
        raise Mistake(f"{path} holds {type(stored).__name__}; give {FORM}")
    for name, pair in stored.items():
        if isinstance(pair, Mapping):
            yield _named_entries({"environment": name, **pair}, path)
        elif isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2:
            yield name, pair[0], pair[1]
        else:
            raise Mistake(
                f"{path}: {name} needs two numbers, low and high; got {shown_value(pair)}"
            )


def _csv_rows(text: str, path: Path) -> Iterator[tuple[str, Any, Any]]:
    lines = text.splitlines()
    delimiter = max(",;\t", key=(lines[0] if lines else "").count)
    for row in csv.DictReader(lines, delimiter=delimiter):
        yield _named_entries({(key or "").strip(): value for key, value in row.items()}, path)


def _named_entries(entry: Any, path: Path) -> tuple[str, Any, Any]:
    """Return the environment, the low and the high reference of a row with named entries."""
    if not isinstance(entry, Mapping):
        raise Mistake(f"{path} holds {shown_value(entry)}; give {FORM}")
    lower = {str(key).lower(): value for key, value in entry.items()}
    found = []
    for part, names in NAMES.items():
        known = [lower[name] for name in names if name in lower]
        if not known:
            raise Mistake(f"{path} has no column {part!r}; it has {', '.join(lower) or 'none'}")
        found.append(known[0])
    return str(found[0]), found[1], found[2]


def _checked(name: str, low: Any, high: Any, path: Path) -> tuple[float, float]:
    try:
        pair = float(low), float(high)
    except (TypeError, ValueError) as error:
        raise Mistake(f"{path}: the references of {name} must be numbers; got {low!r} and {high!r}"
                      ) from error  # fmt: skip
    if not all(map(math.isfinite, pair)) or pair[0] == pair[1]:
        raise Mistake(
            f"{path}: the references of {name} are {pair[0]:g} and {pair[1]:g}; give two different "
            "finite numbers, the return that counts as 0 and the one that counts as 1"
        )
    return pair
