"""What the processes of one run (see processes.py) have written, put together as one run's."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.report.damaged import check_part
from sterling.report.metrics import Row, Sink, read
from sterling.statistics.declared import Bounds
from sterling.statistics.scores import Failed
from sterling.training import folder
from sterling.training.phase_results import merged_phases
from sterling.training.trained import final, of_channel


class Merge:
    """Puts the parts' rows of metrics together as soon as no part can add to them.

    A part that ends early, since its seeds have diverged, goes on as rows of None. Rows up to
    the iteration ``begun`` are taken to have been written.
    """

    def __init__(
        self, paths: Sequence[Path], counts: Sequence[int], sinks: Sequence[Sink], begun: int = -1
    ):
        self.paths, self.counts, self.sinks = list(paths), list(counts), list(sinks)
        self._written = begun

    def go_on(self) -> None:
        """Write the rows that have become complete."""
        logs = [Log(path, count) for path, count in zip(self.paths, self.counts, strict=True)]
        reached = min(log.reached for log in logs)
        made = {iteration for log in logs for iteration in log.rows}
        for iteration in sorted(i for i in made if self._written < i <= reached):
            row = _merged_row([log.rows.get(iteration, {}) for log in logs], logs, iteration)
            for sink in self.sinks:
                sink.write(row)
            self._written = iteration


class Log:
    """What one part, of ``count`` seeds, has logged: its rows by iteration."""

    def __init__(self, path: Path, count: int):
        self.count = count
        self._result = folder.read_result(path)  # first: once it is there, no row follows
        file = folder.metrics(path)
        rows = read(file) if file.exists() else []
        check_part(path, count, self._result, rows)
        self.rows: dict[int, Row] = {row["iteration"]: row for row in rows}

    @property
    def last(self) -> int:
        """The iteration of the last row; -1 where there is none."""
        return max(self.rows, default=-1)

    @property
    def reached(self) -> float:
        """Up to which iteration the rows are known: without end, where the part has ended."""
        return float(self.last) if self._result is None else math.inf

    def silent(self, names: Row, iteration: int) -> Row:
        """Such a row, at ``iteration``, of a part that has nothing to say there."""
        earlier = [row for at, row in self.rows.items() if at <= iteration]
        before = earlier[-1] if earlier else {"failed": [], "time/seconds": 0.0}
        failed = before["failed"]
        if self._result is not None and iteration > self.last:
            failed = self._result.get("failed_seeds", [])  # some may have failed after the last row
        nothing = {k: [None] * self.count if isinstance(v, list) else v for k, v in names.items()}
        slow = {name: 0.0 for name in _speeds(names)}
        return {**nothing, **slow, "failed": failed, "time/seconds": before["time/seconds"]}


def interleaved(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """Cards dealt out, put together again."""
    made: list[Any] = [None] * sum(len(part) for part in parts)
    for i, part in enumerate(parts):
        made[i :: len(parts)] = part
    return made


def merged(
    results: Sequence[dict[str, Any]],
    envs: int,
    seconds: float,
    within: Bounds | None,
    rule: Failed = None,
) -> dict[str, Any]:
    """One result from one per part, of ``envs`` environments per seed. It took ``seconds``, and
    as long as its longest part, which may have been resumed. ``rule``: what a failed seed counts
    as."""
    seeds = interleaved([result["seeds"] for result in results])
    failed = sorted(seed for result in results for seed in result["failed_seeds"])
    seconds = max(seconds, *(result["wall_seconds"] for result in results))

    def over(parts: Sequence[Any]) -> dict[str, Any]:
        return _together(results, parts, (seeds, failed))

    def last(name: str) -> dict[str, Any]:
        scores = interleaved([_per_seed(r, name) for r in results])
        if name == "return":
            return final(scores, seeds, failed, within, rule)
        return _of_channel(results[0]["channels"][name], (scores, seeds, failed), rule)

    kind = "updates" if "updates" in results[0] else "steps"
    made = sum(result[kind] * len(result["seeds"]) for result in results)
    measured = dict.fromkeys(name for result in results for name in result["final"])
    unended = [result.get("unended", [0] * len(result["seeds"])) for result in results]
    most = [name for name in ("steps", "updates", "compile_seconds") if name in results[0]]
    return {
        **results[0],
        **{name: max(result[name] for result in results) for name in most},
        "seeds": seeds,
        "final": {name: last(name) for name in measured},
        "unended": interleaved(unended),
        **merged_phases(results, over),
        "failed_seeds": failed,
        "failures": {k: v for result in results for k, v in result["failures"].items()},
        "world_failures": _world_failures(results, envs),
        "wall_seconds": round(seconds, 3),
        f"{kind}_per_second": round(made / seconds, 3),
    }


def _together(
    results: Sequence[dict[str, Any]], parts: Sequence[Any], of: tuple[list[int], list[int]]
) -> dict[str, Any]:
    """One estimate of that of each part, None where a part has none; ``of`` seeds and failed
    seeds."""
    nothing = [{"per_seed": [None] * len(result["seeds"])} for result in results]
    scores = [(p or none)["per_seed"] for p, none in zip(parts, nothing, strict=True)]
    ends = next((tuple(p["within"]) for p in parts if p and p.get("within")), None)
    return final(interleaved(scores), *of, ends)


def _of_channel(said: dict[str, Any], of: Any, rule: Failed) -> dict[str, Any]:
    """What is ``said`` of a channel, of scores, seeds and failed seeds."""
    ends = None if said["within"] is None else tuple(said["within"])
    scores, seeds, failed = of
    counted = of_channel(rule, ends, said["better"])
    return final(scores, seeds, failed, ends, counted, better=said["better"])


def _merged_row(rows: Sequence[Row], logs: Sequence[Log], iteration: int) -> Row:
    """One row from what each part has at ``iteration``, perhaps nothing."""
    names = {name: value for row in rows for name, value in row.items()}
    rows = [log.silent(names, iteration) | row for log, row in zip(logs, rows, strict=True)]
    made = dict(names)
    for name, value in names.items():
        if name == "failed":
            made[name] = sorted(seed for row in rows for seed in row[name])
        elif isinstance(value, list):
            made[name] = interleaved([row[name] for row in rows])
    made["time/seconds"] = max(row["time/seconds"] for row in rows)
    return made | {name: sum(row[name] for row in rows) for name in _speeds(names)}


def _speeds(row: Row) -> list[str]:
    """What of a row adds up over the parts."""
    return [name for name in ("time/steps_per_second", "time/updates_per_second") if name in row]


def _per_seed(result: dict[str, Any], name: str) -> list[float | None]:
    """A part's scores; None for each of its seeds where all have diverged."""
    return result["final"][name]["per_seed"] if result["final"] else [None] * len(result["seeds"])


def _world_failures(results: Sequence[dict[str, Any]], envs: int) -> list[str]:
    """What went wrong in worlds, one line each; environments are numbered as one process that has
    all the seeds numbers them: through (seed, env)."""
    told = []
    for part, result in enumerate(results):
        for line in result["world_failures"]:
            at = re.match(r"environment (\d+)", line)
            assert at is not None
            seed, env = divmod(int(at[1]), envs)
            number = (part + seed * len(results)) * envs + env
            told.append(f"environment {number}{line[at.end() :]}")
    return told
