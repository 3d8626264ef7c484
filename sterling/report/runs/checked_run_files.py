"""Read the files of a run folder, and check that their values are what training writes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.report.live.metric_sinks import Row
from sterling.statistics.scores.headline import HEADLINE_METRICS
from sterling.system.shown_values import shown_value
from sterling.types import Mistake

COUNT_FIELDS = ("step", "steps", "update", "updates", "iteration")  # counts in rows and results
TEXT_FIELDS = ("algorithm", "environment")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} where the file does not exist. Raises Mistake where it is damaged."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"an object was expected, not {shown_value(found)}")
        return found
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{path} is damaged ({error}); restore it or leave it out") from error


def check_run(path: Path, config: dict[str, Any], result: dict[str, Any], rows: list[Row]) -> None:
    """Raise :class:`Mistake`, naming file and field, where a value has the wrong type."""
    for name, content in (("config.json", config), ("result.json", result)):
        _check_types(path / name, {key: content.get(key, "") for key in TEXT_FIELDS}, str, "text")
        for key in ("steps", "updates"):
            if not _is_count(content.get(key) or 0):
                _raise_mistake(path / name, key, "a whole number of at least 0", content[key])
        for key in ("seeds", "failed_seeds"):
            if not _are_seeds(content.get(key, [])):
                _raise_mistake(path / name, key, "a list of whole numbers", content[key])
    unended = result.get("unended", [])
    if not isinstance(unended, list) or not all(map(_is_count, unended)):
        _raise_mistake(path / "result.json", "unended", "a list of counts", unended)
    _check_types(path / "config.json", {"config": config.get("config", {})}, dict, "an object")
    _check_stopped(path / "result.json", result.get("stopped") or {})
    _check_phases(path / "config.json", config)
    seeds = len(config.get("seeds", result.get("seeds", [])))
    _check_final(path / "result.json", result, seeds)
    for number, row in enumerate(rows, 1):
        _check_row(Path(f"{path / 'metrics.jsonl'}, line {number}"), row, seeds)


def _check_stopped(file: Path, stopped: Any) -> None:
    """Raise :class:`Mistake` where what is said of a run that stopped early has a wrong type."""
    _check_types(file, {"stopped": stopped}, dict, "an object")
    for name in ("by", "reason") if stopped else ():
        _check_types(file, {f"stopped.{name}": stopped.get(name)}, str, "text")
    for name in ("step", "iteration", "phase") if stopped else ():
        if not _is_count(stopped.get(name)):
            _raise_mistake(file, f"stopped.{name}", "a whole number", stopped.get(name))


def _check_phases(file: Path, config: dict[str, Any]) -> None:
    """Raise :class:`Mistake` where the phases after the first are not as they were written."""
    phases = config.get("phases") or []
    if not isinstance(phases, list) or not all(isinstance(each, dict) for each in phases):
        _raise_mistake(file, "phases", "a list of objects", phases)
    for each in [config, *phases] if phases else []:
        _check_types(file, {"env_options": each.get("env_options") or {}}, dict, "an object")


def check_part(path: Path, seeds: int, result: dict[str, Any] | None, rows: list[Row]) -> None:
    """Check a part of a run whose ``seeds`` are trained in their own process.

    Everything that merging needs must be there; raises Mistake as :func:`check_run`. ``result`` is
    None while the part is still training.
    """
    check_run(path, {"seeds": list(range(seeds))}, result or {}, rows)
    for number, row in enumerate(rows, 1):
        line = Path(f"{path / 'metrics.jsonl'}, line {number}")
        for name in ("iteration", "failed", "time/seconds"):
            if name not in row:
                _raise_mistake(line, name, "given", None)
        for name in (name for name in row if "/" in name):
            timed, listed = name.startswith("time/"), isinstance(row[name], list)
            if listed == timed or row[name] is None:
                wanted = "a number" if timed else "a list with a number for each seed"
                _raise_mistake(line, name, wanted, row[name])


def check_part_result(file: Path, result: dict[str, Any], seeds: int) -> None:
    """Raise :class:`Mistake` where a part's result lacks a field that merging needs."""
    kind = "updates" if "updates" in result else "steps"
    kinds: dict[str, tuple[Any, str]] = {
        **{"seeds": (list, f"a list of {seeds} seeds"), "failed_seeds": (list, "a list of seeds")},
        **{"final": (dict, "an object"), "failures": (dict, "an object")},
        **{"wall_seconds": ((int, float), "a number"), kind: (int, "a whole number")},
        **{"compile_seconds": ((int, float), "a number"), "world_failures": (list, "a list")},
    }
    for name, (one, wanted) in kinds.items():
        _check_types(file, {name: result.get(name)}, one, wanted)
    if len(result["seeds"]) != seeds:
        _raise_mistake(file, "seeds", f"a list of {seeds} seeds", result["seeds"])
    if result["final"] and not set(HEADLINE_METRICS) & set(result["final"]):
        _raise_mistake(file, "final", "empty, or an object with return", result["final"])
    if len(result.get("unended", result["seeds"])) != seeds:
        _raise_mistake(file, "unended", f"a list of {seeds} counts", result["unended"])
    for line in result["world_failures"]:
        if not isinstance(line, str) or not re.match(r"environment \d{1,9}\b", line):
            _raise_mistake(file, "world_failures", "a list of lines, as environment 3: why", line)
    switch = result.get("switch") or {}
    _check_types(file, {"switch": switch}, dict, "an object")
    for name in ("before", "lowest", "dip") if switch else ():
        found = switch.get(name)
        if not _are_numbers(found.get("per_seed") if isinstance(found, dict) else None, seeds):
            _raise_mistake(file, f"switch.{name}", "an estimate with a number per_seed", found)


def _check_types(file: Path, values: dict[str, Any], kind: Any, wanted: str) -> None:
    for name, value in values.items():
        if not isinstance(value, kind):
            _raise_mistake(file, name, wanted, value)


def _raise_mistake(file: Path, name: str, wanted: str, value: Any) -> None:
    raise Mistake(
        f"{file}: {name} must be {wanted}; got {shown_value(value)}; restore it or leave it out"
    )


def _check_final(file: Path, result: dict[str, Any], seeds: int) -> None:
    final = result.get("final", {})
    _check_types(file, {"final": final}, dict, "an object")
    for name, found in final.items():
        scores = found.get("per_seed") if isinstance(found, dict) else None
        if not _are_numbers(scores, seeds):
            _raise_mistake(file, f"final.{name}", "an estimate with a number per_seed", found)
        within = found.get("within")
        if within is not None and not _are_numbers(within, 2):
            _raise_mistake(file, f"final.{name}.within", "two numbers (null: no bound)", within)


def _check_row(line: Path, row: Row, seeds: int) -> None:
    for name, value in row.items():
        if name in COUNT_FIELDS and not _is_count(value):
            _raise_mistake(line, name, "a whole number of at least 0", value)
        if name == "failed" and not _are_seeds(value):
            _raise_mistake(line, name, "a list of seeds", value)
        if "/" in name and not (_is_number(value) or _are_numbers(value, seeds)):
            _raise_mistake(line, name, f"a number, or a list of {seeds}", value)
    if "step" not in row and "update" not in row:
        _raise_mistake(line, "step", "given", None)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _are_seeds(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < 2**1000  # larger ones do not fit a NumPy float
    return value is None or type(value) is float


def _are_numbers(values: Any, count: int) -> bool:
    return isinstance(values, Sequence) and len(values) == count and all(map(_is_number, values))
