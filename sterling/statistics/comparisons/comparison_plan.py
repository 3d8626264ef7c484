"""The plan of a comparison: which pairs are compared, on which runs, and at what error level."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from sterling.statistics.comparisons.permutation_law import Pair
from sterling.statistics.scores.score_bounds import ROUNDING_SHARE, Bounds
from sterling.statistics.scores.score_table import FailedRule, Sample, ScoresLike, make_sample
from sterling.types import Mistake

ABOUT = ("tendency", "mean")


@dataclasses.dataclass(frozen=True)
class ComparisonPlan:
    """What is compared; names are in alphabetical order, so the caller's order changes nothing."""

    names: tuple[str, ...]
    runs: tuple[np.ndarray, ...]  # of each name, oldest first
    pairs: tuple[Pair, ...]
    shown: tuple[tuple[str, str], ...]  # the pairs as the caller named them
    alpha: float
    interims: int  # largest number of looks
    per_interim: int | None  # fresh runs of each per look; None: one look at all runs
    key: int
    draws: int
    note: str  # how failed runs were counted
    within: Bounds | None = None  # bounds of the scores, where means are compared

    def run_count(self, member: int, looks: int) -> int:
        """Return how many runs of a member the first ``looks`` looks use."""
        size = int(self.runs[member].size)
        return looks * self.per_interim if self.per_interim is not None else size * min(looks, 1)

    def runs_seen(self, member: int, looks: int) -> np.ndarray:
        """Return the runs of a member that the first ``looks`` looks use."""
        return self.runs[member][: self.run_count(member, looks)]

    def new_runs(self, member: int, look: int) -> np.ndarray:
        """Return the runs that one look, counted from 0, adds."""
        return self.runs[member][self.run_count(member, look) : self.run_count(member, look + 1)]

    def alpha_spent(self, looks: int) -> float:
        """Return the part of alpha that may be spent after ``looks`` looks."""
        return self.alpha * looks / self.interims

    def missing_runs(self, members: Sequence[int], looks: int) -> dict[str, int]:
        """Count the runs that members still need for the first ``looks`` looks, by name."""
        short = {i: self.run_count(i, looks) - self.runs[i].size for i in members}
        return {self.names[i]: count for i, count in short.items() if count > 0}


def make_plan(
    given: Mapping[str, ScoresLike],
    wanted: Sequence[tuple[str, str]] | None,
    failed: FailedRule,
    *,
    alpha: float,
    interims: int,
    per_interim: int | None,
    key: int,
    draws: int,
    within: Bounds | None,
) -> ComparisonPlan:
    """Build the plan of a comparison; raises Mistake for arguments that make no sense."""
    if len(given) < 2:
        raise Mistake(f"nothing to compare: {len(given)} algorithm; give two or more")
    if not 0.0 < alpha < 1.0 or interims < 1 or (per_interim is not None and per_interim < 1):
        raise Mistake("compare needs alpha in (0, 1), interims >= 1 and per_interim >= 1")
    if per_interim is None and interims != 1:
        raise Mistake("per_interim=None looks once at all runs: give interims=1")
    if failed == "exclude":
        raise Mistake("compare cannot leave failed runs out; use failed=<number>")
    names, listed = tuple(sorted(given)), list(given)
    shown = wanted or [(a, b) for i, a in enumerate(listed) for b in listed[i + 1 :]]
    unknown = [name for pair in shown for name in pair if name not in given]
    if unknown:
        raise Mistake(f"no scores of {unknown[0]!r}; use one of {', '.join(listed)}")
    pairs = tuple((min(i, j), max(i, j)) for i, j in _pair_indices(shown, names))
    samples = [make_sample(given[name], failed) for name in names if _score_count(given[name])]
    notes = sorted({made.note for made in samples if made.note})
    runs = tuple(_run_means(given[name], failed) for name in names)
    made = ComparisonPlan(
        names, runs, pairs, tuple(shown), alpha, interims, per_interim, key, draws,
        "; ".join(notes), within,
    )  # fmt: skip
    _check_bounds(made)
    return made


def _check_bounds(made: ComparisonPlan) -> None:
    """Raise Mistake for bounds that are not finite and ascending, or that a score violates."""
    if made.within is None:
        return
    low, high = made.within
    if low is None or high is None or not -np.inf < low < high < np.inf:
        raise Mistake(
            "the bounds of scores must be two finite numbers, the lower one first; got "
            f"within=({low}, {high})"
        )
    slack = ROUNDING_SHARE * (high - low)
    for name, runs in zip(made.names, made.runs, strict=True):
        outside = runs[(runs < low - slack) | (runs > high + slack)]
        if outside.size:
            raise Mistake(
                f"{name} has a score of {outside[0]:g}, outside within=({low:g}, {high:g}); "
                "give bounds that no score can leave"
            )


def _pair_indices(
    pairs: Sequence[tuple[str, str]], names: tuple[str, ...]
) -> list[tuple[int, int]]:
    """Return the pairs as indices into ``names``; raises Mistake for a pair of equal names."""
    for first, second in pairs:
        if first == second:
            raise Mistake(f"{first!r} cannot be compared with itself; give two names")
    return [(names.index(first), names.index(second)) for first, second in pairs]


def _score_count(given: ScoresLike) -> int:
    """Return how many scores were given."""
    return given.values.size if hasattr(given, "values") else len(given)


def _run_means(given: ScoresLike, failed: FailedRule) -> np.ndarray:
    """Return one number per run, its mean over tasks; empty for an algorithm without runs."""
    if not _score_count(given):
        return np.zeros(0)
    made: Sample = make_sample(given, failed)
    if len(set(made.counts)) > 1:
        raise Mistake("compare needs every run on every task; select the tasks all runs share")
    return made.values.reshape(made.tasks, made.n).mean(0)
