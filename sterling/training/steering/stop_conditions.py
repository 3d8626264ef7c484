"""Conditions that stop a run early, for all its seeds together.

They look at one number: the mean, over the seeds that have not failed, of the scores of a periodic
evaluation (judged_score.py). So all seeds of a run have the same budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from sterling.training.config.settings import Settings
from sterling.training.steering.judged_score import RETURN, JudgedScore, judged_score

TIME_IS_UP = "time-budget"


@runtime_checkable
class StopCondition(Protocol):
    """A condition on the periodic evaluations."""

    by: str  # its name in result.json

    def reason_to_stop(self, mean: float) -> str:
        """Take in an evaluation's mean score; return why the run stops, or ""."""
        ...

    def begin_phase(self) -> None:
        """Forget evaluations in the worlds of earlier phases."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return its state as plain values."""
        ...


class StopAt:
    """Stops when the mean score reaches ``level``."""

    by = "stop-at"

    def __init__(self, level: float, score: JudgedScore = RETURN):
        self._level, self._score = level, score

    def reason_to_stop(self, mean: float) -> str:
        """Return why the run stops, or ""."""
        if self._score.is_better(self._level, mean):
            return ""
        return f"the mean {self._score.name} {mean:g} reached {self._level:g}"

    def begin_phase(self) -> None:
        """Do nothing: there is no state."""

    def to_json(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}


class Patience:
    """Stops after ``limit`` evaluations in a row that are not better than the best one before."""

    by = "patience"

    def __init__(self, limit: int, state: dict[str, Any], score: JudgedScore = RETURN):
        self._limit, self._score = limit, score
        self._best: float | None = state.get("best")
        self._waited: int = state.get("waited", 0)

    def reason_to_stop(self, mean: float) -> str:
        """Return why the run stops, or ""."""
        if self._best is None or self._score.is_better(mean, self._best):
            self._best, self._waited = mean, 0
            return ""
        self._waited += 1
        if self._waited < self._limit:
            return ""
        what, improve = self._score.name, self._score.words[1]
        return f"the mean {what} did not {improve} {self._best:g} in {self._waited} evaluations"

    def begin_phase(self) -> None:
        """Begin anew: returns of two worlds cannot be compared."""
        self._best, self._waited = None, 0

    def to_json(self) -> dict[str, Any]:
        """Return the best mean and the evaluations since then."""
        return {"best": self._best, "waited": self._waited}


def make_conditions(settings: Settings, state: dict[str, Any]) -> list[StopCondition]:
    """Return the conditions of the settings, with the ``state`` that a checkpoint holds of each."""
    found: list[StopCondition] = []
    score = judged_score(settings)
    if settings.stop_at is not None:
        found.append(StopAt(settings.stop_at, score))
    if settings.patience:
        found.append(Patience(settings.patience, state.get(Patience.by, {}), score))
    return found


def mean_of_known(scores: Sequence[float | None]) -> float | None:
    """Return the mean of the seeds that have not failed; None if all have. The sum is exact, so the
    order of the seeds does not matter."""
    known = [each for each in scores if each is not None]
    return math.fsum(known) / len(known) if known else None


def time_is_up(settings: Settings, seconds: float) -> dict[str, str] | None:
    """Return the stop that the time budget asks for after ``seconds`` of work; None if it does
    not."""
    if not settings.time_budget or seconds < 60 * settings.time_budget:
        return None
    return {"by": TIME_IS_UP, "reason": f"the run worked for {settings.time_budget:g} minutes"}
