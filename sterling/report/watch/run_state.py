"""Describe a run by its folder, also while it is being written: state, progress, return."""

from __future__ import annotations

import datetime
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from sterling.lookup.user_imports import short_name
from sterling.report.runs.read_return_bounds import return_limits
from sterling.report.watch.metric_points import latest_values
from sterling.report.watch.metrics_tail import MetricsTail
from sterling.statistics import Headline, headline
from sterling.statistics.scores.run_folder_scores import metric_column, row_progress
from sterling.system.atomic_files import is_process_alive
from sterling.system.mistake import Mistake

RECENT_SECONDS = 300.0  # a run of another machine that wrote within this time counts as running
SYSTEM_LOCKS = Path("/proc/locks")
NO_PLACE = "a dataset alone"


def describe_run(folder: Path) -> dict[str, Any]:
    """Return the description of one run; see :func:`describe`."""
    tail = MetricsTail(folder / "metrics.jsonl")
    tail.poll()
    return describe(folder, tail.rows)


def describe(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a run's description as plain values, from its folder and the rows of its log.

    ``state``: "running", "finished", "stopped" or "failed" (every seed failed). ``progress`` and
    ``budget`` count ``unit`` per seed. ``return``: the final one, else that of the seeds' latest
    values in the log, with "text", "value", "low", "high" and where it is "from"; None if there is
    none. ``finals``: the final evaluation's metrics in the same form. ``place``: the environment as
    it was given, or the dataset. ``seconds``: the run's length so far. ``started`` and ``changed``:
    seconds since 1970. Damaged files count as missing and are named in ``problems``.
    """
    problems: list[str] = []
    config = _read(folder / "config.json", problems)
    result = _read(folder / "result.json", problems)
    seeds, last = stored_seeds(config or result), rows[-1] if rows else {}
    unit = "updates" if "update" in last or _count(config.get("updates")) else "steps"
    budget = _count(config.get("steps")) + _count(config.get("updates"))
    phases = [each for each in _list(config.get("phases")) if isinstance(each, dict)]
    budget += sum(_count(each.get(kind)) for each in phases for kind in ("steps", "updates"))
    failed = _list(result.get("failed_seeds")) or _list(last.get("failed"))
    progress = _progress(result, last)
    finals, shown = _finals(result, problems), _latest_return(config, result, rows, problems)
    speed, speed_unit = _speed(result, last, unit)
    place = _place(config)
    return {
        "algorithm": short_name(str(config.get("algorithm", "?"))),
        "environment": short_name(place),
        "place": place,
        "seeds": seeds,
        "failed": [seed for seed in failed if isinstance(seed, int)],
        "state": _state(folder, result, bool(seeds) and len(failed) >= len(seeds)),
        "progress": progress,
        "budget": max(budget, progress),
        "unit": unit,
        "return": finals.get("return") or shown,
        "finals": finals,
        "speed": speed,
        "speed_unit": speed_unit,
        "seconds": result.get("wall_seconds", last.get("time/seconds")),
        "started": _started(config),
        "changed": _changed(folder),
        "problems": problems,
    }


def is_locked(folder: Path) -> bool:
    """Whether a process writes to the run's folder now. The lock itself is not touched: a reader
    that took it, even for a moment, could make a run fail that begins just then."""
    lock = folder / "lock"
    try:
        found, owner = os.stat(lock), lock.read_text(errors="replace").strip()
    except OSError:
        return False
    process, _, host = owner.partition(" on ")
    if host != socket.gethostname():
        return time.time() - _changed(folder) < RECENT_SECONDS
    if SYSTEM_LOCKS.exists():
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        return any(
            words[1] == "FLOCK" and place in words
            for words in map(str.split, SYSTEM_LOCKS.read_text().splitlines())
            if len(words) > 2
        )
    return process.isdigit() and is_process_alive(int(process))


def _read(path: Path, problems: list[str]) -> dict[str, Any]:
    """Return a JSON object; {} where the file is missing or damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    problems.append(f"{path.name} is damaged")
    return {}


def stored_seeds(known: dict[str, Any]) -> list[int]:
    """Return the seeds of a config or result; [] where they are damaged."""
    return [seed for seed in _list(known.get("seeds")) if isinstance(seed, int)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if type(value) is int else 0


def _state(folder: Path, result: dict[str, Any], all_failed: bool) -> str:
    if is_locked(folder):
        return "running"
    if all_failed:
        return "failed"
    return "finished" if result else "stopped"


def _progress(result: dict[str, Any], last: dict[str, Any]) -> int:
    if "steps" in result or "updates" in result:
        return _count(result.get("updates")) or _count(result.get("steps"))
    try:
        return row_progress(last) if last else 0
    except (KeyError, TypeError, ValueError):
        return 0


def _place(config: dict[str, Any]) -> str:
    """Return the environment as it was given, or the dataset where there is none."""
    data = config.get("data")
    path = data.get("path") if isinstance(data, dict) else None
    return str(config.get("environment") or (f"dataset {Path(path).name}" if path else NO_PLACE))


def _finals(result: dict[str, Any], problems: list[str]) -> dict[str, dict[str, Any]]:
    """Return the metrics of the final evaluation, by name."""
    made = {}
    for name, final in _object(result.get("final")).items():
        try:
            made[name] = _headline_json(Headline.from_json(final), "final evaluation")
        except (Mistake, KeyError, TypeError, ValueError, AttributeError):
            problems.append(f"its final {name} could not be read")
    return made


def _latest_return(
    config: dict[str, Any],
    result: dict[str, Any],
    rows: list[dict[str, Any]],
    problems: list[str],
) -> dict[str, Any] | None:
    """Return the return of the seeds' latest values in the log."""
    column, seeds = metric_column(rows, "return"), stored_seeds(config)
    try:
        latest, at = latest_values(rows, column, seeds)
        if not latest:
            return None
        made = headline(latest, within=return_limits(config, result))
    except (Mistake, KeyError, TypeError, ValueError, AttributeError):
        problems.append("its return could not be read")
        return None
    kind = "evaluation" if column.startswith("evaluation") else "training episodes"
    some = f", {len(latest)} of {len(seeds)} seeds" if len(latest) < len(seeds) else ""
    unit = "update" if "update" in rows[-1] else "step"
    return _headline_json(made, f"{kind} at {unit} {at or 0:,}{some}")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _headline_json(made: Headline, source: str) -> dict[str, Any]:
    one = made.shown
    if one is None:
        return {"text": str(made), "value": None, "low": None, "high": None, "from": source}
    return {"text": str(made), "value": one.value, "low": one.low, "high": one.high, "from": source}


def _speed(result: dict[str, Any], last: dict[str, Any], unit: str) -> tuple[float | None, str]:
    """Return the run's speed and what is counted per second: ``unit``, if that was measured."""
    for kind in (unit, "steps", "updates"):
        for value in (result.get(f"{kind}_per_second"), last.get(f"time/{kind}_per_second")):
            if isinstance(value, int | float):
                return float(value), kind
    return None, unit


def _started(config: dict[str, Any]) -> float | None:
    try:
        return datetime.datetime.fromisoformat(config["time"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None


def _changed(folder: Path) -> float:
    """Return when the run last wrote its log, or its settings."""
    times = [0.0]
    for name in ("metrics.jsonl", "result.json", "config.json"):
        try:
            times.append((folder / name).stat().st_mtime)
        except OSError:
            continue
    return max(times)
