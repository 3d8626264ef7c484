"""Read what a run's folder holds, and check that it is what training writes; it may be edited."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.report.metrics import Row
from sterling.types import Mistake

COUNTS = ("step", "steps", "update", "updates", "iteration")  # of a row, and of a result
NAMES = ("algorithm", "environment")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file, or nothing where there is none yet."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"an object is expected, not {found!r:.40}")
        return found
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{path} is damaged ({error}); restore it or leave it out") from error


def check_run(path: Path, config: dict[str, Any], result: dict[str, Any], rows: list[Row]) -> None:
    """Raise :class:`Mistake`, naming file and field, where a value is of another kind."""
    for name, content in (("config.json", config), ("result.json", result)):
        _check(path / name, {key: content.get(key, "") for key in NAMES}, str, "text")
        for key in ("steps", "updates"):
            if not _is_count(content.get(key) or 0):
                _refuse(path / name, key, "a whole number of at least 0", content[key])
        for key in ("seeds", "failed_seeds"):
            if not _are_seeds(content.get(key, [])):
                _refuse(path / name, key, "a list of whole numbers", content[key])
    unended = result.get("unended", [])
    if not isinstance(unended, list) or not all(map(_is_count, unended)):
        _refuse(path / "result.json", "unended", "a list of counts", unended)
    _check(path / "config.json", {"config": config.get("config", {})}, dict, "an object")
    seeds = len(config.get("seeds", result.get("seeds", [])))
    _check_final(path / "result.json", result, seeds)
    for number, row in enumerate(rows, 1):
        _check_row(Path(f"{path / 'metrics.jsonl'}, line {number}"), row, seeds)


def _check(file: Path, values: dict[str, Any], kind: type, wanted: str) -> None:
    for name, value in values.items():
        if not isinstance(value, kind):
            _refuse(file, name, wanted, value)


def _refuse(file: Path, name: str, wanted: str, value: Any) -> None:
    raise Mistake(f"{file}: {name} must be {wanted}; got {value!r:.60}; restore it or leave it out")


def _check_final(file: Path, result: dict[str, Any], seeds: int) -> None:
    final = result.get("final", {})
    _check(file, {"final": final}, dict, "an object")
    for name, found in final.items():
        scores = found.get("per_seed") if isinstance(found, dict) else None
        if not _are_numbers(scores, seeds):
            _refuse(file, f"final.{name}", "an estimate with a number per_seed", found)
        within = found.get("within")
        if within is not None and not _are_numbers(within, 2):
            _refuse(file, f"final.{name}.within", "two numbers (null: no bound)", within)


def _check_row(line: Path, row: Row, seeds: int) -> None:
    for name, value in row.items():
        if name in COUNTS and not _is_count(value):
            _refuse(line, name, "a whole number of at least 0", value)
        if name == "failed" and not _are_seeds(value):
            _refuse(line, name, "a list of seeds", value)
        if "/" in name and not (_is_number(value) or _are_numbers(value, seeds)):
            _refuse(line, name, f"a number, or a list of {seeds}", value)
    if "step" not in row and "update" not in row:
        _refuse(line, "step", "given", None)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _are_seeds(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < 2**1000  # else NumPy has no float for it
    return value is None or type(value) is float


def _are_numbers(values: Any, count: int) -> bool:
    return isinstance(values, Sequence) and len(values) == count and all(map(_is_number, values))
