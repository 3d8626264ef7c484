"""Read the meta.json of a checkpoint, and check its keys and types.

A matching checksum is not enough: someone may have edited the file and computed a new checksum.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from sterling.system.shown_values import shown_value
from sterling.training.saving.tensor_file import DamagedFile, Entry
from sterling.types import Mistake

FORMAT = 1
CONTENT_TYPES = {
    "format": int, "step": int, "meta": dict, "versions": dict, "leaves": list,
    "platform": str, "backend": str,
}  # fmt: skip


def read_content(path: Path) -> dict[str, Any]:
    """Return the verified content of a checkpoint's ``meta.json``.

    Raise DamagedFile if it is damaged, and Mistake if its format is not the one known here."""
    try:
        whole = json.loads((path / "meta.json").read_bytes())
        content, said = whole["content"], whole["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFile(f"meta.json: {error}") from error
    if not isinstance(content, dict):
        raise DamagedFile("meta.json: no object")
    if checksum(content) != said:
        raise DamagedFile("meta.json: checksum differs")
    if content.get("format") != FORMAT and isinstance(content.get("format"), int):
        raise Mistake(
            f"{path} has format {content['format']}, this Sterling reads {FORMAT}. "
            f"Load it with {_writing_version(content)}, which wrote it."
        )
    _check_types(content)
    return content


def _writing_version(content: dict[str, Any]) -> str:
    """Return the version that wrote a checkpoint, if it is given."""
    known = content.get("versions")
    version = known.get("sterling") if isinstance(known, dict) else None
    return f"Sterling {version}" if version else "the Sterling"


def _check_types(content: dict[str, Any]) -> None:
    """Raise DamagedFile if ``meta.json`` has other keys or types than are written there."""
    for name, kind in CONTENT_TYPES.items():
        if not isinstance(content.get(name), kind) or isinstance(content[name], bool):
            raise DamagedFile(f"meta.json: {name} is {shown_value(content.get(name))}")
    for entry in content["leaves"]:
        if not _is_entry(entry):
            raise DamagedFile(f"meta.json: {shown_value(entry)} is no leaf")


def _is_entry(entry: Any) -> bool:
    """Whether a JSON value has the keys and types of an :class:`Entry`."""
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
    """Return the SHA-256 of a ``meta.json``'s content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_entries(content: dict[str, Any]) -> list[Entry]:
    """Return the entries of all leaves listed in the content."""
    return [Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in content["leaves"]]


def is_run_meta(meta: dict[str, Any], seeds: int) -> bool:
    """Whether ``meta`` has the keys and types that a run of ``seeds`` seeds writes."""
    alive, lap = meta.get("alive"), meta.get("lap")
    times = [meta.get(name, 0.0) for name in ("seconds", "compile_seconds")]
    return (
        isinstance(alive, list)
        and len(alive) == seeds
        and all(isinstance(each, bool) for each in alive)
        and _has_phase(meta)
        and isinstance(meta.get("failures"), dict)
        and all(type(each) in (int, float) for each in times)
        and _are_evaluations(meta.get("judged", []), seeds)
        and _are_answer_counts(meta.get("answers", []))
        and (lap is None or _is_log_interval(lap, seeds))
        and _is_steering(meta.get("steering", {}), seeds)
    )


def _is_steering(state: Any, seeds: int) -> bool:
    """Whether this is the state of what steers a run (training/steering/run_steering.py)."""
    if not isinstance(state, dict):
        return False
    best = state.get("best", {"returns": [None] * seeds, "steps": [None] * seeds})
    waits = state.get("patience", {"waited": 0, "best": None})
    parts = [best, waits, state.get("stopped", {"iteration": 0}), state.get("undecided", {})]
    return (
        all(isinstance(part, dict) for part in parts)
        and all(_are_numbers(best.get(name), seeds) for name in ("returns", "steps"))
        and type(waits.get("waited")) is int
        and _are_numbers([waits.get("best")], 1)
        and type(parts[2].get("iteration")) is int
        and isinstance(state.get("callbacks", []), list)
    )


def _has_phase(said: dict[str, Any]) -> bool:
    """Whether the phase's number is given; older checkpoints have ``online`` instead."""
    if "phase" not in said:
        return isinstance(said.get("online"), bool)
    return type(said["phase"]) is int and said["phase"] >= 0


def _are_evaluations(judged: Any, seeds: int) -> bool:
    """Whether these are evaluations, each with a phase and a return per seed."""
    return isinstance(judged, list) and all(
        isinstance(each, dict) and _has_phase(each) and _are_numbers(each.get("return"), seeds)
        for each in judged
    )


def _are_answer_counts(counts: Any) -> bool:
    """Whether these are counts of answers in text worlds (experience/language/
    conversation_host.py)."""
    kinds = {"answers": int, "unjudged": int, "recent": str, "first_reason": str}
    return isinstance(counts, list) and all(
        isinstance(each, dict)
        and all(type(each.get(name)) is kind for name, kind in kinds.items())
        and isinstance(each.get("tally", []), list)
        for each in counts
    )


def _is_log_interval(lap: Any, seeds: int) -> bool:
    """Whether this is a log interval: a count of iterations, and sums of metrics per seed."""
    return (
        isinstance(lap, dict)
        and type(lap.get("iterations")) is int
        and isinstance(lap.get("sums"), dict)
        and all(_are_numbers(values, seeds) for values in lap["sums"].values())
    )


def _are_numbers(values: Any, count: int) -> bool:
    """Whether this is a list of ``count`` numbers or Nones."""
    known = isinstance(values, list) and len(values) == count
    return known and all(value is None or type(value) in (int, float) for value in values)
