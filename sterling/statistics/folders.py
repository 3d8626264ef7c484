"""Scores from Sterling's run folders, without importing what runs them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterling import importing
from sterling.statistics.scores import Scores
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Read:
    """One run folder: one algorithm, one environment, several seeds."""

    folder: Path
    algorithm: str
    environment: str
    seeds: tuple[str, ...]
    values: np.ndarray  # (seed,) or (seed, time); NaN from where a seed failed
    steps: np.ndarray | None


def read_folders(folders: list[Path], what: str, metric: str) -> dict[str, Scores]:
    """Scores by algorithm; environments are tasks."""
    read = [_curve(f, metric) if what == "curve" else _final(f, metric) for f in folders]
    places = [(one.algorithm, one.environment) for one in read]
    by_name: dict[str, list[Read]] = {}
    for one in read:
        twice = places.count((one.algorithm, one.environment)) > 1
        by_name.setdefault(one.folder.resolve().name if twice else one.algorithm, []).append(one)
    return {name: _joined(name, parts) for name, parts in by_name.items()}


def _joined(name: str, parts: list[Read]) -> Scores:
    """Environments side by side; a seed that one of them lacks was not made there."""
    tasks = [part.environment for part in parts]
    if len(set(tasks)) < len(tasks):
        raise Mistake(f"two folders named {name!r} hold the same runs' place; rename one")
    runs = list(dict.fromkeys(seed for part in parts for seed in part.seeds))
    parts = _same_steps(parts)
    shape = (len(runs), len(tasks), *parts[0].values.shape[1:])
    values, mask = np.full(shape, np.nan), np.zeros(shape[:2], bool)
    for column, part in enumerate(parts):
        at = [runs.index(seed) for seed in part.seeds]
        values[at, column], mask[at, column] = part.values, True
    return Scores.of(values, runs=runs, tasks=tasks, mask=mask, name=name, steps=parts[0].steps)


def _same_steps(parts: list[Read]) -> list[Read]:
    """Curves of several environments at the steps of the first, up to the shortest."""
    if parts[0].steps is None:
        return parts
    last = min(part.steps[-1] for part in parts if part.steps is not None)
    steps = parts[0].steps[parts[0].steps <= last]
    if not steps.size:
        raise Mistake("the curves have no steps in common; load the environments one by one")
    made = []
    for part in parts:
        rows = [np.interp(steps, part.steps, row) for row in part.values]  # type: ignore[arg-type]
        made.append(dataclasses.replace(part, values=np.array(rows), steps=steps))
    return made


def _final(folder: Path, metric: str) -> Read:
    """The evaluation of the final policies."""
    result = _json(folder / "result.json")
    found = result.get("final", {}).get(metric)
    if found is None:
        has = ", ".join(result.get("final", {})) or "nothing"
        raise Mistake(f"{folder} has no final {metric!r}; its result.json holds {has}")
    values = np.array(found["per_seed"], np.float64)  # null is NaN: a failed seed
    return Read(folder, result["algorithm"], result["environment"], _named(result), values, None)


def _curve(folder: Path, metric: str) -> Read:
    """What was logged in training.

    Between rows in which a seed finished no episode its curve is a straight line; before the
    first and after the last it is level. From a seed's failure on there is NaN.
    """
    config = _json(folder / "config.json")
    rows = _rows(folder / "metrics.jsonl")
    name = column(rows, metric)
    rows = [row for row in rows if name in row]
    if not rows:
        raise Mistake(f"{folder} has logged no {name!r} yet")
    steps = np.array([place(row) for row in rows], np.float64)
    logged = np.array([row[name] for row in rows], np.float64).T
    values = np.array([_bridged(steps, seed) for seed in logged])
    seeds = config.get("seeds") or list(range(len(values)))
    for row in rows:
        for seed in row.get("failed", []):
            values[seeds.index(seed), steps >= place(row)] = np.nan
    algorithm, world = (importing.short(config[name]) for name in ("algorithm", "environment"))
    return Read(folder, algorithm, world, tuple(map(str, seeds)), values, steps)


def place(row: dict[str, Any]) -> int:
    """Where a row of a log lies: gradient updates where it counts them (runs with logged
    experience), else environment steps."""
    return int(row.get("update", row["step"]))


def column(rows: Sequence[dict[str, Any]], metric: str) -> str:
    """Where a log has ``metric``: in its evaluations if there are some, else in training."""
    judged = f"evaluation/{metric}"
    return judged if any(judged in row for row in rows) else f"data/{metric}"


def _bridged(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    known = np.isfinite(values)
    return np.interp(steps, steps[known], values[known]) if known.any() else values


def _named(result: dict[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, result["seeds"]))


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise Mistake(f"{path.parent} has no {path.name}; is it the folder of a finished run?")
    try:
        return dict(json.loads(path.read_text()))
    except ValueError as error:
        raise Mistake(f"{path} is damaged ({error})") from error


def _rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a torn last one is left out."""
    if not path.is_file():
        raise Mistake(f"{path.parent} has no {path.name}; is it the folder of a run?")
    *lines, _torn = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines]
