"""Tell the folders of runs from others that have a ``config.json``, such as those of models."""

from __future__ import annotations

import functools
import json
from pathlib import Path

RUN_FILES = ("metrics.jsonl", "result.json")  # what tells a run whose config.json is damaged


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is a run: its ``config.json`` names an algorithm and seeds.

    A folder whose ``config.json`` is no JSON object is a run if it has a log or a result, so that
    a damaged run is still named. It is read again only when it has changed.
    """
    try:
        found = (folder / "config.json").stat()
    except OSError:
        return False
    named = _names_algorithm(folder / "config.json", found.st_mtime_ns, found.st_size)
    return any((folder / name).exists() for name in RUN_FILES) if named is None else named


@functools.lru_cache(maxsize=4096)
def _names_algorithm(path: Path, changed: int, size: int) -> bool | None:
    """Whether a config names an algorithm and seeds; None if it is no JSON object. ``changed`` and
    ``size`` tell whether the file is the one that was read before."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return {"algorithm", "seeds"} <= content.keys() if isinstance(content, dict) else None
