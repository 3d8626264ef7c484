"""The plan of a comparison: what is compared with what, on which runs, and how strictly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from sterling.statistics.declared import ROUNDING, Bounds
from sterling.statistics.permutation import Pair
from sterling.statistics.scores import Failed, Given, Sample, sample
from sterling.types import Mistake

ABOUT = ("tendency", "mean")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is compared; names in alphabetical order, so that the order given changes nothing."""

    names: tuple[str, ...]
    runs: tuple[np.ndarray, ...]  # of each name, oldest first
    pairs: tuple[Pair, ...]
    shown: tuple[tuple[str, str], ...]  # the pairs as asked for
    alpha: float
    interims: int  # looks at most
    per_interim: int | None  # fresh runs of each a look; None: one look at all runs of each
    key: int
    draws: int
    note: str  # what was done about failed runs
    within: Bounds | None = None  # bounds of the scores, where means are compared

    def counted(self, member: int, looks: int) -> int:
        """How many runs of a member the first ``looks`` looks take."""
        size = int(self.runs[member].size)
        return looks * self.per_interim if self.per_interim is not None else size * min(looks, 1)

    def seen(self, member: int, looks: int) -> np.ndarray:
        """The runs of a member that the first ``looks`` looks take."""
        return self.runs[member][: self.counted(member, looks)]

    def block(self, member: int, look: int) -> np.ndarray:
        """The runs that one look, counted from 0, adds."""
        return self.runs[member][self.counted(member, look) : self.counted(member, look + 1)]

    def level(self, looks: int) -> float:
        """What may be spent by then: evenly over the looks."""
        return self.alpha * looks / self.interims

    def lacking(self, members: Sequence[int], looks: int) -> dict[str, int]:
        """Runs that members lack for the first ``looks`` looks."""
        short = {i: self.counted(i, looks) - self.runs[i].size for i in members}
        return {self.names[i]: count for i, count in short.items() if count > 0}


def planned(
    given: Mapping[str, Given],
    wanted: Sequence[tuple[str, str]] | None,
    failed: Failed,
    *,
    alpha: float,
    interims: int,
    per_interim: int | None,
    key: int,
    draws: int,
    within: Bounds | None,
) -> Plan:
    """The plan of what was given; raises Mistake where it makes no sense."""
    if len(given) < 2:
        raise Mistake(f"nothing to compare: {len(given)} algorithm; give two or more")
    if not 0.0 < alpha < 1.0 or interims < 1 or (per_interim is not None and per_interim < 1):
        raise Mistake("compare needs alpha in (0, 1), interims >= 1 and per_interim >= 1")
    if per_interim is None and interims != 1:
        raise Mistake("per_interim=None looks once at all runs: give interims=1")
    if failed == "exclude":
        raise Mistake("compare cannot leave failed runs out; say failed=<what they count as>")
    names, listed = tuple(sorted(given)), list(given)
    shown = wanted or [(a, b) for i, a in enumerate(listed) for b in listed[i + 1 :]]
    lost = [name for pair in shown for name in pair if name not in given]
    if lost:
        raise Mistake(f"no scores of {lost[0]!r}; there are {', '.join(listed)}")
    pairs = tuple((min(i, j), max(i, j)) for i, j in _indices(shown, names))
    samples = [sample(given[name], failed) for name in names if _size(given[name])]
    notes = sorted({made.note for made in samples if made.note})
    runs = tuple(_row_means(given[name], failed) for name in names)
    made = Plan(
        names, runs, pairs, tuple(shown), alpha, interims, per_interim, key, draws,
        "; ".join(notes), within,
    )  # fmt: skip
    _check_bounds(made)
    return made


def _check_bounds(made: Plan) -> None:
    """Raises Mistake for bounds that are none, or that a score leaves."""
    if made.within is None:
        return
    low, high = made.within
    if low is None or high is None or not -np.inf < low < high < np.inf:
        raise Mistake(
            f"means are decided between two finite bounds, the lower one first; got within=({low}, "
            f"{high})"
        )
    slack = ROUNDING * (high - low)
    for name, runs in zip(made.names, made.runs, strict=True):
        outside = runs[(runs < low - slack) | (runs > high + slack)]
        if outside.size:
            raise Mistake(
                f"{name} has a score of {outside[0]:g}, outside within=({low:g}, {high:g}); "
                "give bounds that no score can leave"
            )


def _indices(pairs: Sequence[tuple[str, str]], names: tuple[str, ...]) -> list[tuple[int, int]]:
    for first, second in pairs:
        if first == second:
            raise Mistake(f"{first!r} cannot be compared with itself; give two names")
    return [(names.index(first), names.index(second)) for first, second in pairs]


def _size(given: Given) -> int:
    return given.values.size if hasattr(given, "values") else len(given)


def _row_means(given: Given, failed: Failed) -> np.ndarray:
    """One number per run; an algorithm without runs yet has none."""
    if not _size(given):
        return np.zeros(0)
    made: Sample = sample(given, failed)
    if len(set(made.counts)) > 1:
        raise Mistake("compare needs every run on every task; select the tasks all runs share")
    return made.values.reshape(made.tasks, made.n).mean(0)
