"""Scores: one number per run and task (and point of time), with names and with what is missing.

A *run* is one seed's training. A cell of the table is one of three things, and they are kept
apart: a finite score; a run that **failed** (``mask`` true, value NaN); a run that was never made
(``mask`` false). What a failed run counts as is said by the caller, in every function alike:

    failed=None        nothing is decided: NaN is refused with a Mistake
    failed=<number>    every failed run counts as that number (say, the worst possible return)
    failed="exclude"   failed runs are left out, and the method of the result says how many
    failed="worst"     the worst that is possible, where the bounds of scores are declared
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Array, Bool, Float

from sterling.types import Mistake

Failed = float | int | Literal["exclude", "worst"] | None


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of one algorithm; rows are runs, columns tasks, a third axis is time."""

    values: Float[np.ndarray, "run task *time"]
    runs: tuple[str, ...]
    tasks: tuple[str, ...]
    mask: Bool[np.ndarray, "run task"]  # True: this run was made on this task
    name: str = ""
    normaliser: str | None = None  # the table the values were normalised by, with its version
    steps: Float[np.ndarray, "time"] | None = None  # environment steps of the time axis
    ends: Float[np.ndarray, "run task"] | None = None  # the last that was logged, where it differs

    @classmethod
    def of(
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
        """From ``(run,)``, ``(run, task)`` or ``(run, task, time)``; names default to numbers.

        Without ``mask`` every cell counts as made. Raises Mistake for other shapes, infinite
        values, and names that do not fit the axes.
        """
        made = table(values)
        shape = made.shape[:2]
        runs = tuple(map(str, range(shape[0]))) if runs is None else tuple(map(str, runs))
        tasks = tuple(map(str, range(shape[1]))) if tasks is None else tuple(map(str, tasks))
        if (len(runs), len(tasks)) != shape:
            raise Mistake(f"{len(runs)} runs and {len(tasks)} tasks do not name a {shape} table")
        twice = [task for task in tasks if tasks.count(task) > 1]
        if twice:
            raise Mistake(f"the task {twice[0]!r} is named twice; give each column its own name")
        kept = np.ones(shape, bool) if mask is None else np.asarray(mask, bool).copy()
        if kept.shape != shape:
            raise Mistake(f"the mask has shape {kept.shape}; it must be {shape}, as the scores")
        times = None if steps is None else np.asarray(steps, np.float64)
        if times is not None and made.shape[2:] != times.shape:
            raise Mistake(f"{times.shape} steps do not fit scores of shape {made.shape}")
        return cls(made, runs, tasks, kept, name, normaliser, times)

    @classmethod
    def load(cls, *paths: str | os.PathLike[str], **options: Any) -> Scores:
        """Of one algorithm, from run folders, a CSV or a JSON; see ``sterling.statistics.load``.

        Raises Mistake where the files hold several algorithms.
        """
        from sterling.statistics.load import load_one

        return load_one(paths, **options)

    def select(self, tasks: Sequence[str]) -> Scores:
        """The same runs on some of the tasks, in the order given."""
        lost = [task for task in tasks if task not in self.tasks]
        if lost:
            raise Mistake(f"no scores on {lost[0]!r}; the tasks are {', '.join(self.tasks)}")
        at = [self.tasks.index(task) for task in tasks]
        ends = None if self.ends is None else self.ends[:, at]
        return dataclasses.replace(
            self, values=self.values[:, at], mask=self.mask[:, at], tasks=tuple(tasks), ends=ends
        )

    def final(self) -> Scores:
        """The last point of time only; scores without a time axis as they are."""
        if self.values.ndim == 2:
            return self
        return dataclasses.replace(self, values=self.values[..., -1], steps=None, ends=None)


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a statistic is made from: finite scores, task after task, and how many of each."""

    values: Float[np.ndarray, "score"]
    counts: tuple[int, ...]  # runs of each task
    note: str  # what was done about failed runs; "" if there were none

    @property
    def starts(self) -> np.ndarray:
        """Where each task's runs begin in ``values``."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    @property
    def columns(self) -> list[np.ndarray]:
        """The scores of each task."""
        return np.split(self.values, np.cumsum(self.counts)[:-1])

    @property
    def n(self) -> int:
        """Runs of the task that has fewest: what the result can at most be said to rest on."""
        return min(self.counts)

    @property
    def tasks(self) -> int:
        """How many tasks."""
        return len(self.counts)


Given = Scores | Sequence[Any] | np.ndarray | Array


def table(values: Sequence[Any] | np.ndarray | Array) -> np.ndarray:
    """Plain values as a new float64 array ``(run, task[, time])``; NaN may stand, infinity not."""
    try:
        made = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise Mistake(
            "scores must be numbers in a (run,) or (run, task) table; mark runs that were not "
            f"made with Scores.of(..., mask=) ({error})"
        ) from error
    if made.ndim == 1:
        made = made[:, None]
    if made.ndim not in (2, 3) or made.size == 0:
        raise Mistake(f"scores need at least one score per run; got an array of shape {made.shape}")
    if np.isinf(made).any():
        raise Mistake(
            f"{int(np.isinf(made).sum())} of {made.size} scores are infinite; "
            "mark failed runs with NaN and say failed=<number> or 'exclude'"
        )
    return made


def scores_of(given: Given, name: str = "") -> Scores:
    """``given`` as :class:`Scores`."""
    return given if isinstance(given, Scores) else Scores.of(given, name=name)


def sample(given: Given, failed: Failed = None) -> Sample:
    """The scores that count, by the rule for failed runs at the head of this file.

    Raises Mistake for NaN with ``failed=None``, for a time axis, and for a task without any run.
    """
    scores = scores_of(given).final() if isinstance(given, Scores) else scores_of(given)
    if scores.values.ndim == 3:
        raise Mistake("these scores have a time axis; take .final(), or use curve or auc")
    values, mask = scores.values.copy(), scores.mask
    lost = np.isnan(values) & mask
    note = ""
    if lost.any():
        values, mask, note = _settled(values, mask, lost, failed)
    counts = [int(count) for count in np.sum(mask, axis=0)]
    if 0 in counts:
        empty = scores.tasks[counts.index(0)]
        raise Mistake(f"no run counts on task {empty!r}; select the tasks that were run")
    return Sample(values.T[mask.T], tuple(counts), note)


def _settled(
    values: np.ndarray, mask: np.ndarray, lost: np.ndarray, failed: Failed
) -> tuple[np.ndarray, np.ndarray, str]:
    """Failed runs replaced or left out, and the words for it."""
    count, of = int(lost.sum()), int(mask.sum())
    if failed is None:
        raise Mistake(
            f"{count} of {of} scores are not finite (failed runs); say what they count as: "
            "failed=<number> or failed='exclude'"
        )
    if failed == "exclude":
        return values, mask & ~lost, f"{count} of {of} failed, excluded"
    if failed == "worst":
        raise Mistake(
            "failed='worst' needs the worst possible score, which is known where estimate(..., "
            "within=(low, high)) declares it; give failed=<number>"
        )
    number = float(failed)
    if not math.isfinite(number):
        raise Mistake(f"failed={failed} is no score; give a finite number or 'exclude'")
    return np.where(lost, number, values), mask, f"{count} of {of} failed, counted as {number:g}"
