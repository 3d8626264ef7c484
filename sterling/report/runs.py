"""Results to be looked at: run folders, evidence files, and files of other libraries.

Nothing here needs JAX, so that a report of many runs is there at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from sterling.naming import hint
from sterling.report.damaged import check_run, read_json
from sterling.report.limits import limits
from sterling.report.metrics import Row
from sterling.report.metrics import read as read_rows
from sterling.statistics import folders
from sterling.statistics.declared import Bounds
from sterling.types import Mistake

if TYPE_CHECKING:
    from sterling.statistics import Scores

UNNAMED = "scores"  # the environment of a file that names none
LAST = 0.1  # share of the log that a logged metric is averaged over


@dataclasses.dataclass(frozen=True)
class Curves:
    """Returns per seed over training."""

    steps: Float[np.ndarray, "row"]
    returns: Float[np.ndarray, "seed row"]  # NaN where no episode ended, and from failure on
    seeds: list[int]
    failed: dict[int, float]  # seed -> the step its failure was noticed at
    unit: str = "steps"  # what steps count: those of the environment, or gradient "updates"
    episodes: str = "training"  # or "evaluation": which ones the returns are of


@dataclasses.dataclass(frozen=True)
class Result:
    """What one run (of several seeds) came to on one environment."""

    place: str  # the folder or file it was read from
    algorithm: str
    environment: str
    seeds: list[int]
    scores: Float[np.ndarray, "seed"] | None  # NaN: failed; None: not finished
    curves: Curves
    label: str | None = None  # given by the user
    config: dict[str, Any] = dataclasses.field(default_factory=dict)  # as in config.json
    result: dict[str, Any] = dataclasses.field(default_factory=dict)  # as in result.json
    within: Bounds | None = None  # what scores cannot leave, where that is known
    better: int = 1  # scores of which more is better; -1: less is

    @property
    def steps(self) -> float | None:
        """Environment steps taken per seed; None where nothing says."""
        if "steps" in self.result:
            return float(self.result["steps"])
        return float(self.curves.steps[-1]) if self.curves.steps.size else None

    @property
    def updates(self) -> int | None:
        """Gradient updates per seed, of a run that counts by them: it took no steps of its own."""
        known = self.result or self.config
        return None if known.get("steps") else known.get("updates") or None

    @property
    def failed(self) -> list[int]:
        """Seeds that diverged."""
        gone = set(self.result.get("failed_seeds", [])) | set(self.curves.failed)
        return [seed for seed in self.seeds if seed in gone]


def read(words: Sequence[str | Path], metric: str = "return") -> tuple[list[Result], list[str]]:
    """The results found under ``words``, and what is to be said of those that were passed over.

    A word is a run folder, a folder of run folders, a study of ``compare --until-decided``, a CSV
    or JSON file of scores, each also as ``LABEL=PATH``. ``metric`` is one that ``result.json``
    gives (``return``), or a column of the log (``data/return``), averaged over the last tenth of
    the steps.

    Raises Mistake where a path does not exist, nothing was found, or no run has the metric.
    """
    results: list[Result] = []
    notes: list[str] = []
    for word in words:
        label, path = _labelled(str(word))
        if not path.exists():
            raise Mistake(f"there is no {path}; give run folders, or files of scores")
        if path.is_file():
            results += _read_file(path, label, metric, notes)
            continue
        folders = _runs_in(path)
        if not folders:
            notes.append(f"{path} holds no run: passed over")
        results += [_read_run(folder, label or side, metric, notes) for folder, side in folders]
    if not results:
        raise Mistake(f"no run in {', '.join(str(word) for word in words) or 'nothing'}")
    if not any(one.scores is not None for one in results):
        _check_metric(metric, [one for one in results if one.result])
    return results, notes


def _check_metric(metric: str, finished: list[Result]) -> None:
    """Raises Mistake where runs are finished and none has the metric."""
    logs = [Path(one.place) / "metrics.jsonl" for one in finished]
    rows = [row for log in logs if log.exists() for row in read_rows(log)[-1:]]
    known = {name for row in rows for name in row if "/" in name}
    known |= {name for one in finished for name in one.result.get("final", {})}
    if finished and known:
        near = hint(metric, known, f"there are {', '.join(sorted(known))}")
        raise Mistake(f"no run has the metric {metric!r}{near}")


def curves(
    rows: list[Row], seeds: list[int] | None, column: str = "", *, lived: bool = False
) -> Curves:
    """The rows of a log as arrays, of one column (by default the return's). ``lived``: steps were
    taken from the start, and are what is counted, though a log was learned from beside them."""
    column = column or folders.column(rows, "return")
    rows = [row for row in rows if column in row]
    if not rows:
        return Curves(np.zeros(0), np.zeros((0, 0)), [], {})
    if not isinstance(rows[0][column], list):
        raise Mistake(f"the log's {column!r} is one number for all seeds; take one per seed")
    values = np.array([row[column] for row in rows], np.float64).T
    by_updates = not lived and any("update" in row for row in rows)
    place = folders.place if by_updates else lambda row: int(row["step"])
    steps = np.array([place(row) for row in rows], np.float64)
    seeds = seeds or list(range(len(values)))
    failed: dict[int, float] = {}
    for row in rows:
        for seed in row.get("failed", []):
            failed.setdefault(seed, float(place(row)))
    for seed, step in failed.items():
        values[seeds.index(seed), steps > step] = np.nan
    unit = "updates" if by_updates else "steps"
    episodes = "evaluation" if column.startswith("evaluation/") else "training"
    return Curves(steps, values, list(seeds), failed, unit, episodes)


def _labelled(word: str) -> tuple[str | None, Path]:
    label, equals, rest = word.partition("=")
    if equals and not Path(word).exists():
        return label, Path(rest)
    return None, Path(word)


def _runs_in(folder: Path) -> list[tuple[Path, str | None]]:
    """The folder itself, or the runs in it; of a study (``compare --until-decided``) those of every
    look, each with the label of its contender."""
    if (folder / "config.json").exists():
        return [(folder, None)]
    if (folder / "question.json").exists():
        files = sorted(folder.glob("*/*/config.json"))
        return [(file.parent, file.parents[1].name) for file in files]
    return [(file.parent, None) for file in sorted(folder.glob("*/config.json"))]


def _read_run(folder: Path, label: str | None, metric: str, notes: list[str]) -> Result:
    config, result = read_json(folder / "config.json"), read_json(folder / "result.json")
    log = folder / "metrics.jsonl"
    rows = read_rows(log) if log.exists() else []
    check_run(folder, config, result, rows)
    made = _made(
        *(str(folder), config, result, rows),
        label=label,
        metric=metric,
    )
    if not result:
        reached = f"{made.steps:,.0f}" if made.steps else "0"
        budget = f"{made.updates:,} updates" if made.updates else f"{config['steps']:,} steps"
        notes.append(f"{folder} is not finished ({reached} of {budget})")
    elif made.scores is None:
        notes.append(f"{folder} has no {metric!r} in its result: left out of the scores")
    return made


def _made(
    place: str,
    config: dict[str, Any],
    result: dict[str, Any],
    rows: list[Row],
    *,
    label: str | None,
    metric: str,
) -> Result:
    """A result from what a run leaves on disk."""
    known = result or config
    seeds = [int(seed) for seed in config.get("seeds", known.get("seeds", []))]
    found = curves(rows, seeds, lived=bool(config.get("steps") and not config.get("updates")))
    if "/" in metric:
        scores = _late(rows, seeds, metric)
    else:
        final = result.get("final", {}).get(metric)
        scores = None if final is None else np.array(final["per_seed"], np.float64)
    for at, seed in enumerate(seeds):
        if scores is not None and seed in {*result.get("failed_seeds", []), *found.failed}:
            scores[at] = np.nan
    said = result.get("channels", {}).get(metric.rpartition("/")[-1], {})
    ends = said.get("within") and tuple(said["within"])
    ends = limits(config, result) if metric.endswith("return") else ends
    algorithm, environment = (known.get(name, "?") for name in ("algorithm", "environment"))
    how = (label, config, result, ends, said.get("better", 1))
    return Result(place, algorithm, environment, seeds, scores, found, *how)


def _late(rows: list[Row], seeds: list[int], column: str) -> Float[np.ndarray, "seed"] | None:
    """Each seed's mean of a column over the last tenth of the steps; None without any row."""
    found = curves(rows, seeds, column)
    if not found.steps.size:
        return None
    late = found.returns[:, found.steps >= (1 - LAST) * found.steps[-1]]
    known = np.isfinite(late)
    total = np.where(known, late, 0.0).sum(1)
    return np.where(known.any(1), total / np.maximum(known.sum(1), 1), np.nan)


def _read_file(path: Path, label: str | None, metric: str, notes: list[str]) -> list[Result]:
    """One file: evidence as kept beside published scores, or plain scores, a result per task."""
    content = read_json(path) if path.suffix == ".json" else {}
    if {"result", "config"} <= set(content):
        parts = (content["config"], content["result"], content.get("curve", []))
        return [_made(str(path), *parts, label=label, metric=metric)]
    from sterling.statistics import load

    found = load(path)
    if label is not None and len(found) > 1:
        raise Mistake(f"{path} holds {', '.join(found)}; leave out the label {label!r}")
    made = [
        _of_task(scores, at, path, label or name)
        for name, scores in found.items()
        for at in range(len(scores.tasks))
    ]
    notes += [note for scores in found.values() for note in _uneven(scores, path)]
    return made


def _of_task(scores: Scores, at: int, path: Path, label: str) -> Result:
    """One task of a file of scores; NaN is a run that failed, masked is one that was not made."""
    made = np.flatnonzero(scores.mask[:, at])
    values = scores.values[made, at]
    seeds = _numbered([scores.runs[run] for run in made])
    last = values[:, -1] if values.ndim == 2 else values
    failed = [seed for seed, score in zip(seeds, last, strict=True) if np.isnan(score)]
    found = Curves(np.zeros(0), np.zeros((0, 0)), [], {})
    if values.ndim == 2 and scores.steps is not None:
        ends = np.inf if scores.ends is None else scores.ends[made, at][:, None]
        logged = np.where(scores.steps <= ends, values, np.nan)
        lost = {seed: _lost(scores.steps, row) for seed, row in zip(seeds, values, strict=True)}
        found = Curves(scores.steps, logged, seeds, {seed: lost[seed] for seed in failed})
    environment = scores.tasks[at] if scores.tasks != ("0",) else UNNAMED
    facts = {"failed_seeds": failed}
    ends = limits({}, {"environment": environment})
    return Result(
        *(str(path), label, environment, seeds, last, found),
        label=label,
        result=facts,
        within=ends,
    )


def _numbered(runs: Sequence[str]) -> list[int]:
    """The runs' own numbers where each has one, else 0, 1, 2, ..."""
    if all(run.isdecimal() for run in runs) and len({int(run) for run in runs}) == len(runs):
        return [int(run) for run in runs]
    return list(range(len(runs)))


def _lost(steps: Float[np.ndarray, "time"], values: Float[np.ndarray, "time"]) -> float:
    """The step from which on a run is NaN."""
    known = np.flatnonzero(~np.isnan(values))
    return float(steps[min(known[-1] + 1, steps.size - 1) if known.size else 0])


def _uneven(scores: Scores, path: Path) -> list[str]:
    """That runs of a task were not logged to the same end, where that is so."""
    told = []
    for task, ends in zip(scores.tasks, () if scores.ends is None else scores.ends.T, strict=False):
        low, high = np.nanmin(ends), np.nanmax(ends)
        if low < (1 - LAST) * high:
            where = f" on {task}" if scores.tasks != ("0",) else ""
            told.append(
                f"{path}: runs of {scores.name}{where} end between {low:,.0f} and {high:,.0f} "
                "steps; each counts by its own last score"
            )
    return told
