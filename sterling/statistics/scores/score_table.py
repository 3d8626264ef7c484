"""Scores: one number per run and task (and time), with names, failed runs and missing runs.

A *run* is one seed's training. A cell of the table is one of three things, and they are kept apart:
a finite score; a run that **failed** (``mask`` true, value NaN); a run that was never made
(``mask`` false). The caller says what a failed run counts as, in every function by the same
argument:

    failed=None        not decided: NaN is refused with a Mistake
    failed=<number>    every failed run counts as that number (say, the worst possible return)
    failed="exclude"   failed runs are left out, and the method of the result says how many
    failed="worst"     the worst possible score, where the bounds of scores are declared
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Array, Bool, Float

from sterling.types import Mistake

FailedRule = float | int | Literal["exclude", "worst"] | None


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of one algorithm: rows are runs, columns are tasks, an optional third axis is time."""

    values: Float[np.ndarray, "run task *time"]
    runs: tuple[str, ...]
    tasks: tuple[str, ...]
    mask: Bool[np.ndarray, "run task"]  # True: this run was made on this task
    name: str = ""
    normaliser: str | None = None  # the table the values were normalised by, with its version
    steps: Float[np.ndarray, "time"] | None = None  # environment steps of the time axis
    ends: Float[np.ndarray, "run task"] | None = None  # last logged step per run, if they differ
    read_files: ClassVar[Callable[..., Scores]]  # set by ``load_scores.py``, which needs this class

    @classmethod
    def from_values(
        cls,
        values: Sequence[Any] | np.ndarray | Array,
        *,
        runs: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        mask: Sequence[Any] | np.ndarray | None = None,
        name: str = "",
        normaliser: str | None = None,
        steps: Sequence[float | int] | np.ndarray | None = None,
    ) -> Scores:
        """Build scores from ``(run,)``, ``(run, task)`` or ``(run, task, time)`` values.

        Names default to numbers; without ``mask`` every cell counts as made. Raises Mistake for
        other shapes, infinite values, and names that do not fit the axes.
        """
        made = as_score_array(values)
        shape = made.shape[:2]
        runs = tuple(map(str, range(shape[0]))) if runs is None else tuple(map(str, runs))
        tasks = tuple(map(str, range(shape[1]))) if tasks is None else tuple(map(str, tasks))
        if (len(runs), len(tasks)) != shape:
            raise Mistake(
                f"{len(runs)} runs and {len(tasks)} tasks do not match a table of shape {shape}"
            )
        duplicates = [task for task in tasks if tasks.count(task) > 1]
        if duplicates:
            raise Mistake(
                f"the task {duplicates[0]!r} is named twice; give each column its own name"
            )
        made_cells = np.ones(shape, bool) if mask is None else np.asarray(mask, bool).copy()
        if made_cells.shape != shape:
            raise Mistake(
                f"the mask has shape {made_cells.shape}; it must be {shape}, that of the scores"
            )
        times = None if steps is None else np.asarray(steps, np.float64)
        if times is not None and made.shape[2:] != times.shape:
            raise Mistake(f"steps of shape {times.shape} do not fit scores of shape {made.shape}")
        return cls(made, runs, tasks, made_cells, name, normaliser, times)

    @classmethod
    def load(cls, *paths: str | os.PathLike[str], **options: Any) -> Scores:
        """Load one algorithm's scores from files; the options are those of ``statistics.load``.

        Raises Mistake where the files hold several algorithms.
        """
        return cls.read_files(paths, **options)

    def select(self, tasks: Sequence[str]) -> Scores:
        """Return the same runs on some of the tasks, in the order given."""
        missing = [task for task in tasks if task not in self.tasks]
        if missing:
            raise Mistake(f"no scores on {missing[0]!r}; the tasks are {', '.join(self.tasks)}")
        at = [self.tasks.index(task) for task in tasks]
        ends = None if self.ends is None else self.ends[:, at]
        return dataclasses.replace(
            self, values=self.values[:, at], mask=self.mask[:, at], tasks=tuple(tasks), ends=ends
        )

    def final(self) -> Scores:
        """Return the scores at the last time only; scores without a time axis are unchanged."""
        if self.values.ndim == 2:
            return self
        return dataclasses.replace(self, values=self.values[..., -1], steps=None, ends=None)


@dataclasses.dataclass(frozen=True)
class Sample:
    """The input of a statistic: finite scores, task after task, and the number of runs of each."""

    values: Float[np.ndarray, "score"]
    counts: tuple[int, ...]  # runs of each task
    note: str  # how failed runs were counted; "" if there were none

    @property
    def starts(self) -> np.ndarray:
        """Return where each task's runs begin in ``values``."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    @property
    def columns(self) -> list[np.ndarray]:
        """Return the scores of each task."""
        return np.split(self.values, np.cumsum(self.counts)[:-1])

    @property
    def n(self) -> int:
        """Return the fewest runs of any task: what the result rests on at most."""
        return min(self.counts)

    @property
    def tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.counts)


ScoresLike = Scores | Sequence[Any] | np.ndarray | Array


def as_score_array(values: Sequence[Any] | np.ndarray | Array) -> np.ndarray:
    """Convert values to a new float64 array ``(run, task[, time])``; NaN may occur, infinity
    not."""
    try:
        made = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise Mistake(
            "scores must be numbers in a (run,) or (run, task) table; if some runs were never "
            f"made, mask their cells: Scores.from_values(..., mask=) ({error})"
        ) from error
    if made.ndim == 1:
        made = made[:, None]
    if made.ndim not in (2, 3) or made.size == 0:
        raise Mistake(f"scores need at least one score per run; got an array of shape {made.shape}")
    if np.isinf(made).any():
        raise Mistake(
            f"{int(np.isinf(made).sum())} of {made.size} scores are infinite; "
            "mark failed runs with NaN and use failed=<number> or 'exclude'"
        )
    return made


def as_scores(given: ScoresLike, name: str = "") -> Scores:
    """Return ``given`` as :class:`Scores`."""
    return given if isinstance(given, Scores) else Scores.from_values(given, name=name)


def make_sample(given: ScoresLike, failed: FailedRule = None) -> Sample:
    """Return the scores that count, by the rule for failed runs at the head of this file.

    Raises Mistake for NaN with ``failed=None``, for a time axis, and for a task without any run.
    """
    scores = as_scores(given).final() if isinstance(given, Scores) else as_scores(given)
    if scores.values.ndim == 3:
        raise Mistake("these scores have a time axis; call .final(), or use curve or auc")
    values, mask = scores.values.copy(), scores.mask
    failed_cells = np.isnan(values) & mask
    note = ""
    if failed_cells.any():
        values, mask, note = _apply_failed_rule(values, mask, failed_cells, failed)
    counts = [int(count) for count in np.sum(mask, axis=0)]
    if 0 in counts:
        empty = scores.tasks[counts.index(0)]
        raise Mistake(f"no run counts on task {empty!r}; select the tasks that were run")
    return Sample(values.T[mask.T], tuple(counts), note)


def _apply_failed_rule(
    values: np.ndarray, mask: np.ndarray, failed_cells: np.ndarray, failed: FailedRule
) -> tuple[np.ndarray, np.ndarray, str]:
    """Replace or exclude failed runs; return values, mask and a note about it."""
    count, total = int(failed_cells.sum()), int(mask.sum())
    if failed is None:
        raise Mistake(
            f"{count} of {total} scores are not finite (failed runs); say what they count as: "
            "failed=<number> or failed='exclude'"
        )
    if failed == "exclude":
        return values, mask & ~failed_cells, f"{count} of {total} failed, excluded"
    if failed == "worst":
        raise Mistake(
            "failed='worst' needs the worst possible score: declare it with estimate(..., "
            "within=(low, high)), or use failed=<number>"
        )
    number = float(failed)
    if not math.isfinite(number):
        raise Mistake(f"failed={failed} is not a score; give a finite number or 'exclude'")
    return (
        np.where(failed_cells, number, values),
        mask,
        f"{count} of {total} failed, counted as {number:g}",
    )
