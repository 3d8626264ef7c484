"""Read what a run's folder holds, and check that it is what training writes; it may be edited."""

from __future__ import annotations

import json
import re
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


def check_part(path: Path, seeds: int, result: dict[str, Any] | None, rows: list[Row]) -> None:
    """The same of a part of a run whose ``seeds`` are in processes of their own: what is put
    together (``training/merging.py``) must all be there. ``result``: None while it is trained."""
    check_run(path, {"seeds": list(range(seeds))}, result or {}, rows)
    for number, row in enumerate(rows, 1):
        line = Path(f"{path / 'metrics.jsonl'}, line {number}")
        for name in ("iteration", "failed", "time/seconds"):
            if name not in row:
                _refuse(line, name, "given", None)
        for name in (name for name in row if "/" in name):
            timed, listed = name.startswith("time/"), isinstance(row[name], list)
            if listed == timed or row[name] is None:
                wanted = "a number" if timed else "a list with a number for each seed"
                _refuse(line, name, wanted, row[name])


def check_made(file: Path, result: dict[str, Any], seeds: int) -> None:
    """Raise :class:`Mistake` where a part's result lacks what is put together in the end."""
    kind = "updates" if "updates" in result else "steps"
    kinds: dict[str, tuple[Any, str]] = {
        **{"seeds": (list, f"a list of {seeds} seeds"), "failed_seeds": (list, "a list of seeds")},
        **{"final": (dict, "an object"), "failures": (dict, "an object")},
        **{"wall_seconds": ((int, float), "a number"), kind: (int, "a whole number")},
        **{"compile_seconds": ((int, float), "a number"), "world_failures": (list, "a list")},
    }
    for name, (one, wanted) in kinds.items():
        _check(file, {name: result.get(name)}, one, wanted)
    if len(result["seeds"]) != seeds:
        _refuse(file, "seeds", f"a list of {seeds} seeds", result["seeds"])
    if result["final"] and "return" not in result["final"]:
        _refuse(file, "final", "empty, or an object with return", result["final"])
    if len(result.get("unended", result["seeds"])) != seeds:
        _refuse(file, "unended", f"a list of {seeds} counts", result["unended"])
    for line in result["world_failures"]:
        if not isinstance(line, str) or not re.match(r"environment \d{1,9}\b", line):
            _refuse(file, "world_failures", "a list of lines, as environment 3: why", line)
    switch = result.get("switch") or {}
    _check(file, {"switch": switch}, dict, "an object")
    for name in ("before", "lowest", "dip") if switch else ():
        found = switch.get(name)
        if not _are_numbers(found.get("per_seed") if isinstance(found, dict) else None, seeds):
            _refuse(file, f"switch.{name}", "an estimate with a number per_seed", found)


def _check(file: Path, values: dict[str, Any], kind: Any, wanted: str) -> None:
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
