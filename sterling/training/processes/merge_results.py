"""Merge the metrics and results that the processes of one run have written."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.report.live.metric_sinks import Row, Sink, read_metrics
from sterling.report.runs.checked_run_files import check_part
from sterling.statistics.scores.score_bounds import Bounds
from sterling.statistics.scores.score_table import FailedRule
from sterling.training.evaluation.evaluate_policy import BEFORE
from sterling.training.evaluation.final_estimate import channel_failed_score, final_estimate
from sterling.training.phases.phase_results import merge_phase_results
from sterling.training.saving import run_folder
from sterling.training.steering.best_result import merge_best_results


class MetricsMerger:
    """Merges the parts' rows of metrics; a row is written once every part has reached it.

    A part that ended early because its seeds diverged contributes None. Rows up to the iteration
    ``begun`` count as written already.
    """

    def __init__(
        self, paths: Sequence[Path], counts: Sequence[int], sinks: Sequence[Sink], begun: int = -1
    ):
        self.paths, self.counts, self.sinks = list(paths), list(counts), list(sinks)
        self._written = begun

    def go_on(self) -> None:
        """Write the rows that every part has reached."""
        logs = [PartLog(path, count) for path, count in zip(self.paths, self.counts, strict=True)]
        reached = min(log.reached for log in logs)
        made = {iteration for log in logs for iteration in log.rows}
        for iteration in sorted(i for i in made if self._written < i <= reached):
            row = _merge_rows([log.rows.get(iteration, {}) for log in logs], logs, iteration)
            for sink in self.sinks:
                sink.write(row)
            self._written = iteration


class PartLog:
    """The rows of metrics that one part, of ``count`` seeds, has written, by iteration."""

    def __init__(self, path: Path, count: int):
        self.count = count
        self._result = run_folder.read_result(path)  # read first: once it exists, no row follows
        file = run_folder.metrics_path(path)
        rows = read_metrics(file) if file.exists() else []
        check_part(path, count, self._result, rows)
        self.rows: dict[int, Row] = {row["iteration"]: row for row in rows}

    @property
    def last(self) -> int:
        """Return the iteration of the last row; -1 if there is none."""
        return max(self.rows, default=-1)

    @property
    def reached(self) -> float:
        """Return the iteration up to which all rows are known; infinity once the part has ended."""
        return float(self.last) if self._result is None else math.inf

    def row_without_news(self, names: Row, iteration: int) -> Row:
        """Return a row with the columns of ``names`` for an iteration that the part did not log."""
        earlier = [row for at, row in self.rows.items() if at <= iteration]
        before = earlier[-1] if earlier else {"failed": [], "time/seconds": 0.0}
        failed = before["failed"]
        if self._result is not None and iteration > self.last:
            failed = self._result.get("failed_seeds", [])  # seeds may fail after the last row
        nothing = {k: [None] * self.count if isinstance(v, list) else v for k, v in names.items()}
        slow = {name: 0.0 for name in _speed_columns(names)}
        return {**nothing, **slow, "failed": failed, "time/seconds": before["time/seconds"]}


def interleave(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """Undo dealing seeds to parts in turn: return the parts' items in the order of the seeds."""
    made: list[Any] = [None] * sum(len(part) for part in parts)
    for i, part in enumerate(parts):
        made[i :: len(parts)] = part
    return made


def merge_results(
    results: Sequence[dict[str, Any]],
    envs: int,
    seconds: float,
    within: Bounds | None,
    rule: FailedRule = None,
) -> dict[str, Any]:
    """Merge the parts' results into one; every seed has ``envs`` environments. The wall time is the
    longer of ``seconds`` and the parts'. ``rule``: what a failed seed counts as."""
    seeds = interleave([result["seeds"] for result in results])
    failed = sorted(seed for result in results for seed in result["failed_seeds"])
    seconds = max(seconds, *(result["wall_seconds"] for result in results))

    def over(parts: Sequence[Any]) -> dict[str, Any]:
        return _merge_estimates(results, parts, (seeds, failed))

    def last(name: str, of: Sequence[dict[str, Any]] = results) -> dict[str, Any]:
        scores = interleave([_per_seed(r, name) for r in of])
        if name in ("return", BEFORE):
            return final_estimate(scores, seeds, failed, within, rule)
        return _channel_estimate(_declared(results[0], of, name), (scores, seeds, failed), rule)

    unit = "updates" if "updates" in results[0] else "steps"
    total = sum(result[unit] * len(result["seeds"]) for result in results)
    measured = dict.fromkeys(name for result in results for name in result["final"])
    maxima = [name for name in ("steps", "updates", "compile_seconds") if name in results[0]]
    return {
        **results[0],
        **{name: max(result[name] for result in results) for name in maxima},
        "seeds": seeds,
        "final": {name: last(name) for name in measured},
        "unended": interleave([x.get("unended", [0] * len(x["seeds"])) for x in results]),
        **merge_phase_results(results, over),
        **merge_best_results(results, interleave, last),
        **next(({"stopped": each["stopped"]} for each in results if each.get("stopped")), {}),
        "failed_seeds": failed,
        "failures": {k: v for result in results for k, v in result["failures"].items()},
        "world_failures": _world_failures(results, envs),
        **_unjudged(results),
        "wall_seconds": round(seconds, 3),
        f"{unit}_per_second": round(total / seconds, 3),
    }


def _merge_estimates(
    results: Sequence[dict[str, Any]], parts: Sequence[Any], of: tuple[list[int], list[int]]
) -> dict[str, Any]:
    """Merge the parts' estimates into one (None: a part has none); ``of``: seeds, failed seeds."""
    nothing = [{"per_seed": [None] * len(result["seeds"])} for result in results]
    scores = [(p or none)["per_seed"] for p, none in zip(parts, nothing, strict=True)]
    ends = next((tuple(p["within"]) for p in parts if p and p.get("within")), None)
    return final_estimate(interleave(scores), *of, ends)


def _channel_estimate(said: dict[str, Any], of: Any, rule: FailedRule) -> dict[str, Any]:
    """Return a channel's estimate, by its declaration ``said``; ``of``: scores, seeds, failed."""
    ends = None if said["within"] is None else tuple(said["within"])
    scores, seeds, failed = of
    counted = channel_failed_score(rule, ends, said["better"])
    return final_estimate(scores, seeds, failed, ends, counted, better=said["better"])


def _declared(result: dict[str, Any], parts: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the declaration of a channel, or what the parts' estimates say of a summary."""
    better = next(part["final"][name].get("better", 1) for part in parts if name in part["final"])
    return dict(result.get("channels", {}).get(name, {"within": None, "better": better}))


def _merge_rows(rows: Sequence[Row], logs: Sequence[PartLog], iteration: int) -> Row:
    """Merge the parts' rows at ``iteration``; a part without a row contributes None."""
    names = {name: value for row in rows for name, value in row.items()}
    rows = [
        log.row_without_news(names, iteration) | row for log, row in zip(logs, rows, strict=True)
    ]
    made = dict(names)
    for name, value in names.items():
        if name == "failed":
            made[name] = sorted(seed for row in rows for seed in row[name])
        elif isinstance(value, list):
            made[name] = interleave([row[name] for row in rows])
        elif name == "without_verdict":
            made[name] = _unjudged(rows)[name]
    made["time/seconds"] = max(row["time/seconds"] for row in rows)
    return made | {name: sum(row[name] for row in rows) for name in _speed_columns(names)}


def _speed_columns(row: Row) -> list[str]:
    """Return the columns of a row that are summed over the parts."""
    return [name for name in ("time/steps_per_second", "time/updates_per_second") if name in row]


def _per_seed(result: dict[str, Any], name: str) -> list[float | None]:
    """Return a part's scores per seed; None for each if all of them have diverged."""
    return result["final"][name]["per_seed"] if result["final"] else [None] * len(result["seeds"])


def _unjudged(parts: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the parts' texts on answers without a verdict, if there are any."""
    texts = [part["without_verdict"] for part in parts if part.get("without_verdict")]
    return {"without_verdict": "; ".join(texts)} if texts else {}


def _world_failures(results: Sequence[dict[str, Any]], envs: int) -> list[str]:
    """Return the parts' world failures, one line each, with environments numbered as in a single
    process with all seeds: seed by seed."""
    lines = []
    for part, result in enumerate(results):
        for line in result["world_failures"]:
            at = re.match(r"environment (\d+)", line)
            assert at is not None
            seed, env = divmod(int(at[1]), envs)
            number = (part + seed * len(results)) * envs + env
            lines.append(f"environment {number}{line[at.end() :]}")
    return lines
