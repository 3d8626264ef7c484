"""Read results: run folders, evidence files, and files of other libraries.

Nothing here needs JAX, so that a report of many runs starts at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from sterling.lookup.name_suggestions import did_you_mean
from sterling.report.live.metric_sinks import Row
from sterling.report.live.metric_sinks import read_metrics as read_rows
from sterling.report.runs.checked_run_files import check_run, read_json
from sterling.report.runs.early_stops import early_stop_text
from sterling.report.runs.read_return_bounds import return_limits
from sterling.report.runs.run_folders import is_run_folder
from sterling.statistics.scores import run_folder_scores
from sterling.statistics.scores.score_bounds import Bounds
from sterling.types import Mistake

if TYPE_CHECKING:
    from sterling.statistics import Scores

UNNAMED_ENVIRONMENT = "scores"  # the environment of a file that names none
LAST_SHARE = 0.1  # logged metrics are averaged over this last share of the log


@dataclasses.dataclass(frozen=True)
class SeedCurves:
    """Returns per seed over training."""

    steps: Float[np.ndarray, "row"]
    returns: Float[np.ndarray, "seed row"]  # NaN where no episode ended, and from failure on
    seeds: list[int]
    failed: dict[int, float]  # seed -> the step at which its failure was detected
    unit: str = "steps"  # what steps count: those of the environment, or gradient "updates"
    episodes: str = "training"  # or "evaluation": the episodes the returns come from


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of one run (of several seeds) on one environment."""

    place: str  # the folder or file it was read from
    algorithm: str
    environment: str
    seeds: list[int]
    scores: Float[np.ndarray, "seed"] | None  # NaN: failed; None: not finished
    curves: SeedCurves
    label: str | None = None  # given by the user
    config: dict[str, Any] = dataclasses.field(default_factory=dict)  # as in config.json
    result: dict[str, Any] = dataclasses.field(default_factory=dict)  # as in result.json
    within: Bounds | None = None  # bounds of the scores, where known
    better: int = 1  # 1: higher scores are better; -1: lower ones

    @property
    def steps(self) -> float | None:
        """Return the environment steps per seed; None where they are not known."""
        if "steps" in self.result:
            return float(self.result["steps"])
        return float(self.curves.steps[-1]) if self.curves.steps.size else None

    @property
    def updates(self) -> int | None:
        """Return the gradient updates per seed of a run that took no steps; else None."""
        known = self.result or self.config
        return None if known.get("steps") else known.get("updates") or None

    @property
    def failed(self) -> list[int]:
        """Return the seeds that diverged."""
        failed_seeds = set(self.result.get("failed_seeds", [])) | set(self.curves.failed)
        return [seed for seed in self.seeds if seed in failed_seeds]


def read_results(
    words: Sequence[str | Path], metric: str = "return"
) -> tuple[list[RunResult], list[str]]:
    """Read the results found under ``words``; return them with notes on what was passed over.

    A word is a run folder, a folder of run folders, a study of ``compare --until-decided``, a CSV
    or JSON file of scores, each also as ``LABEL=PATH``. ``metric`` is one that ``result.json`` has
    (``return``), or a column of the log (``data/return``), averaged over the last tenth of the
    steps.

    Raises Mistake where a path does not exist, nothing was found, or no run has the metric.
    """
    results: list[RunResult] = []
    notes: list[str] = []
    for word in words:
        label, path = _split_label(str(word))
        if not path.exists():
            raise Mistake(f"{path} does not exist; give run folders, or files of scores")
        if path.is_file():
            results += _read_file(path, label, metric, notes)
            continue
        folders = _find_run_folders(path)
        if not folders:
            notes.append(f"{path} has no runs: skipped")
        results += [_read_run(folder, label or side, metric, notes) for folder, side in folders]
    if not results:
        raise Mistake(f"no run found in {', '.join(str(word) for word in words) or 'nothing'}")
    if not any(one.scores is not None for one in results):
        _check_metric(metric, [one for one in results if one.result])
    return results, notes


def _check_metric(metric: str, finished: list[RunResult]) -> None:
    """Raise Mistake where runs are finished and none has the metric."""
    logs = [Path(one.place) / "metrics.jsonl" for one in finished]
    rows = [row for log in logs if log.exists() for row in read_rows(log)[-1:]]
    known = {name for row in rows for name in row if "/" in name}
    known |= {name for one in finished for name in one.result.get("final", {})}
    if finished and known:
        near = did_you_mean(metric, known, f"use one of {', '.join(sorted(known))}")
        raise Mistake(f"no run has the metric {metric!r}{near}")


def curves_from_rows(
    rows: list[Row], seeds: list[int] | None, column: str = "", *, online_only: bool = False
) -> SeedCurves:
    """Return one column of a log as arrays (by default the return).

    ``online_only``: the run took steps from the start, so steps are counted even if it also
    learned from a dataset.
    """
    column = column or run_folder_scores.metric_column(rows, "return")
    rows = [row for row in rows if column in row]
    if not rows:
        return SeedCurves(np.zeros(0), np.zeros((0, 0)), [], {})
    if not isinstance(rows[0][column], list):
        raise Mistake(
            f"the log's {column!r} is one number for all seeds; choose one with a number per seed"
        )
    values = run_folder_scores.column_values(rows, column).T
    by_updates = not online_only and any("update" in row for row in rows)
    place = run_folder_scores.row_progress if by_updates else lambda row: int(row["step"])
    steps = np.array([place(row) for row in rows], np.float64)
    seeds = seeds or list(range(len(values)))
    failed: dict[int, float] = {}
    for row in rows:
        failed = {seed: float(place(row)) for seed in row.get("failed", [])} | failed
    for seed, step in failed.items():
        values[seeds.index(seed), steps > step] = np.nan
    unit = "updates" if by_updates else "steps"
    episodes = "evaluation" if column.startswith("evaluation/") else "training"
    return SeedCurves(steps, values, list(seeds), failed, unit, episodes)


def _split_label(word: str) -> tuple[str | None, Path]:
    label, equals, rest = word.partition("=")
    if equals and not Path(word).exists():
        return label, Path(rest)
    return None, Path(word)


def _find_run_folders(folder: Path) -> list[tuple[Path, str | None]]:
    """Return the folder itself, or the run folders in it, each with its label (None: not given).

    Of a study (``compare --until-decided``) those of every look, labelled by contender.
    """
    if is_run_folder(folder):
        return [(folder, None)]
    if (folder / "question.json").exists():
        looks = sorted(folder.glob("*/*/"))
        return [(each, each.parent.name) for each in looks if is_run_folder(each)]
    return [(each, None) for each in sorted(folder.iterdir()) if is_run_folder(each)]


def _read_run(folder: Path, label: str | None, metric: str, notes: list[str]) -> RunResult:
    config, result = read_json(folder / "config.json"), read_json(folder / "result.json")
    log = folder / "metrics.jsonl"
    rows = read_rows(log) if log.exists() else []
    check_run(folder, config, result, rows)
    made = _make_result(str(folder), config, result, rows, label=label, metric=metric)
    if not result:
        reached = f"{made.steps:,.0f}" if made.steps else "0"
        budget = f"{made.updates:,} updates" if made.updates else f"{config['steps']:,} steps"
        notes.append(f"{folder} is not finished ({reached} of {budget})")
    if stopped := early_stop_text(config, result):
        notes.append(f"{folder} {stopped}")
    if result and made.scores is None:
        notes.append(f"{folder} has no {metric!r} in its result: left out of the scores")
    return made


def _make_result(
    place: str,
    config: dict[str, Any],
    result: dict[str, Any],
    rows: list[Row],
    *,
    label: str | None,
    metric: str,
) -> RunResult:
    """Build a result from the files of a run."""
    known = result or config
    seeds = [int(seed) for seed in config.get("seeds", known.get("seeds", []))]
    online_only = bool(config.get("steps") and not config.get("updates"))
    found = curves_from_rows(rows, seeds, online_only=online_only)
    final, channels = result.get("final", {}), result.get("channels", {})
    if "/" in metric and metric not in final:
        scores = _late_means(rows, seeds, metric)
    else:
        scores = np.array(final[metric]["per_seed"], np.float64) if metric in final else None
    for at, seed in enumerate(seeds):
        if scores is not None and seed in {*result.get("failed_seeds", []), *found.failed}:
            scores[at] = np.nan
    channel = final.get(metric, (final | channels).get(metric.rpartition("/")[-1], {}))
    ends = channel.get("within") and tuple(channel["within"])
    ends = return_limits(config, result) if metric.endswith("return") else ends
    algorithm, environment = (known.get(name, "?") for name in ("algorithm", "environment"))
    how = (label, config, result, ends, channel.get("better", 1))
    return RunResult(place, algorithm, environment, seeds, scores, found, *how)


def _late_means(rows: list[Row], seeds: list[int], column: str) -> Float[np.ndarray, "seed"] | None:
    """Return each seed's mean of a column over the last tenth of the steps; None without rows."""
    found = curves_from_rows(rows, seeds, column)
    if not found.steps.size:
        return None
    late = found.returns[:, found.steps >= (1 - LAST_SHARE) * found.steps[-1]]
    known = np.isfinite(late)
    total = np.where(known, late, 0.0).sum(1)
    return np.where(known.any(1), total / np.maximum(known.sum(1), 1), np.nan)


def _read_file(path: Path, label: str | None, metric: str, notes: list[str]) -> list[RunResult]:
    """Read one file: evidence (config, result, curve), or plain scores with a result per task."""
    content = read_json(path) if path.suffix == ".json" else {}
    if {"result", "config"} <= set(content):
        parts = (content["config"], content["result"], content.get("curve", []))
        return [_make_result(str(path), *parts, label=label, metric=metric)]
    from sterling.statistics import load

    found = load(path)
    if label is not None and len(found) > 1:
        raise Mistake(f"{path} holds {', '.join(found)}; leave out the label {label!r}")
    made = [
        _result_of_task(scores, at, path, label or name)
        for name, scores in found.items()
        for at in range(len(scores.tasks))
    ]
    notes += [note for scores in found.values() for note in _uneven_end_notes(scores, path)]
    return made


def _result_of_task(scores: Scores, at: int, path: Path, label: str) -> RunResult:
    """Build the result of one task of a file; NaN is a failed run, a masked run was not made."""
    made = np.flatnonzero(scores.mask[:, at])
    values = scores.values[made, at]
    seeds = _seed_numbers([scores.runs[run] for run in made])
    last = values[:, -1] if values.ndim == 2 else values
    failed = [seed for seed, score in zip(seeds, last, strict=True) if np.isnan(score)]
    found = SeedCurves(np.zeros(0), np.zeros((0, 0)), [], {})
    if values.ndim == 2 and scores.steps is not None:
        ends = np.inf if scores.ends is None else scores.ends[made, at][:, None]
        logged = np.where(scores.steps <= ends, values, np.nan)
        by_seed = dict(zip(seeds, values, strict=True))
        failed_at = {seed: _first_failed_step(scores.steps, by_seed[seed]) for seed in failed}
        found = SeedCurves(scores.steps, logged, seeds, failed_at)
    environment = scores.tasks[at] if scores.tasks != ("0",) else UNNAMED_ENVIRONMENT
    facts = {"failed_seeds": failed}
    ends = return_limits({}, {"environment": environment})
    return RunResult(str(path), label, environment, seeds, last, found, label, {}, facts, ends)


def _seed_numbers(runs: Sequence[str]) -> list[int]:
    """Return the runs' own numbers if each has a distinct one, else 0, 1, 2, ..."""
    if all(run.isdecimal() for run in runs) and len({int(run) for run in runs}) == len(runs):
        return [int(run) for run in runs]
    return list(range(len(runs)))


def _first_failed_step(
    steps: Float[np.ndarray, "time"], values: Float[np.ndarray, "time"]
) -> float:
    """Return the step from which on a run is NaN."""
    known = np.flatnonzero(~np.isnan(values))
    return float(steps[min(known[-1] + 1, steps.size - 1) if known.size else 0])


def _uneven_end_notes(scores: Scores, path: Path) -> list[str]:
    """Return notes on tasks whose runs were logged up to different steps."""
    notes = []
    for task, ends in zip(scores.tasks, () if scores.ends is None else scores.ends.T, strict=False):
        low, high = np.nanmin(ends), np.nanmax(ends)
        if low < (1 - LAST_SHARE) * high:
            where = f" on {task}" if scores.tasks != ("0",) else ""
            notes.append(
                f"{path}: runs of {scores.name}{where} end between {low:,.0f} and {high:,.0f} "
                "steps; each counts by its own last score"
            )
    return notes
