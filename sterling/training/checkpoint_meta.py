"""Read the meta.json of a checkpoint, and check that it says what is written there.

Its checksum can be right although its keys are wrong: whoever edits the file can make a new one.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from sterling.training.leaves import Damaged, Entry
from sterling.types import Mistake

FORMAT = 1
FORM = {
    "format": int, "step": int, "meta": dict, "versions": dict, "leaves": list,
    "platform": str, "backend": str,
}  # fmt: skip


def read_content(path: Path) -> dict[str, Any]:
    """``meta.json`` of a checkpoint, verified and of the format known here."""
    try:
        whole = json.loads((path / "meta.json").read_bytes())
        content, said = whole["content"], whole["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"meta.json: {error}") from error
    if not isinstance(content, dict):
        raise Damaged("meta.json: no object")
    if checksum(content) != said:
        raise Damaged("meta.json: checksum differs")
    if content.get("format") != FORMAT and isinstance(content.get("format"), int):
        raise Mistake(
            f"{path} has format {content['format']}, this Sterling reads {FORMAT}; "
            f"load it with {_writer(content)}, which wrote it"
        )
    _check_form(content)
    return content


def _writer(content: dict[str, Any]) -> str:
    """Who wrote a checkpoint, as far as it says so."""
    known = content.get("versions")
    version = known.get("sterling") if isinstance(known, dict) else None
    return f"Sterling {version}" if version else "the Sterling"


def _check_form(content: dict[str, Any]) -> None:
    """Raise Damaged where ``meta.json`` has other keys or kinds than are written: its checksum can
    be right all the same, if somebody edited the file and made it anew."""
    for name, kind in FORM.items():
        if not isinstance(content.get(name), kind) or isinstance(content[name], bool):
            raise Damaged(f"meta.json: {name} is {content.get(name)!r:.40}")
    for entry in content["leaves"]:
        if not _is_entry(entry):
            raise Damaged(f"meta.json: {entry!r:.60} is no leaf")


def _is_entry(entry: Any) -> bool:
    """Whether that is what :class:`Entry` is written as."""
    if not isinstance(entry, dict) or set(entry) != set(Entry._fields):
        return False
    shape, words = entry["shape"], (entry["key"], entry["implementation"])
    try:
        np.dtype(entry["dtype"] if isinstance(entry["dtype"], str) else "")
    except TypeError:
        return False
    return (
        isinstance(shape, list)
        and all(type(size) is int and 0 <= size < 2**62 for size in shape)
        and all(word is None or isinstance(word, str) for word in words)
        and isinstance(entry["name"], str)
        and isinstance(entry["sha256"], str)
    )


def checksum(content: dict[str, Any]) -> str:
    """Return the checksum that ``meta.json`` holds of its content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def entries_of(content: dict[str, Any]) -> list[Entry]:
    """Return the entries of all leaves that the content lists."""
    return [Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in content["leaves"]]


def is_of_run(meta: dict[str, Any], seeds: int) -> bool:
    """Whether ``meta`` holds what a run of so many seeds writes there."""
    alive, lap = meta.get("alive"), meta.get("lap")
    times = [meta.get(name, 0.0) for name in ("seconds", "compile_seconds")]
    return (
        isinstance(alive, list)
        and len(alive) == seeds
        and all(isinstance(each, bool) for each in alive)
        and _says_phase(meta)
        and isinstance(meta.get("failures"), dict)
        and all(type(each) in (int, float) for each in times)
        and _are_judged(meta.get("judged", []), seeds)
        and (lap is None or _is_lap(lap, seeds))
    )


def _says_phase(said: dict[str, Any]) -> bool:
    """Whether the number of a phase is given; older ones say whether agents acted."""
    if "phase" not in said:
        return isinstance(said.get("online"), bool)
    return type(said["phase"]) is int and said["phase"] >= 0


def _are_judged(judged: Any, seeds: int) -> bool:
    """Whether these are evaluations: the phase, and a return of every seed."""
    return isinstance(judged, list) and all(
        isinstance(each, dict) and _says_phase(each) and _are_numbers(each.get("return"), seeds)
        for each in judged
    )


def _is_lap(lap: Any, seeds: int) -> bool:
    """Whether these are a count of iterations and sums of metrics, each of every seed."""
    return (
        isinstance(lap, dict)
        and type(lap.get("iterations")) is int
        and isinstance(lap.get("sums"), dict)
        and all(_are_numbers(values, seeds) for values in lap["sums"].values())
    )


def _are_numbers(values: Any, count: int) -> bool:
    """Whether these are so many numbers; None says that there is none."""
    known = isinstance(values, list) and len(values) == count
    return known and all(value is None or type(value) in (int, float) for value in values)
