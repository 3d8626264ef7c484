"""Which of several algorithms are better, in as few runs as it takes.

AdaStop (Mathieu et al. 2024, TMLR, arXiv:2306.10882): every algorithm is trained with
``per_interim`` fresh seeds; pairs that differ clearly are decided, the others train on, at most
``interims`` times. After k blocks the statistic of a pair is

    T_k(i, j) = | sum over blocks of (mean of block of i - mean of block of j) |

and its law under "no difference" is that of exchanged runs, given that it crossed no earlier
boundary. Boundary k is the smallest that lets at most ``alpha k / interims`` of all sequences
cross by then. Two things differ from the package released as adastop 0.1.3:

* exchanged differences are absolute, as the statistic is (it takes signed ones, which doubles the
  error for two algorithms);
* step-down is closed testing (Marcus, Peritz & Gabriel 1976): a pair is decided once every
  grouping that calls it equal is rejected, each by its own exchanges. The probability of any wrong
  "larger" or "smaller" is then at most ``alpha``, exactly, whichever algorithms are equal.

"equal" means not told apart, not proved the same. It is not valid to run this repeatedly on
overlapping runs with other settings until it answers as wished.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling.statistics.permutation import Group, Law, Pair, cross, hypotheses, inside, rows_of
from sterling.statistics.scores import Failed, Given, Sample, sample
from sterling.types import Mistake


@dataclasses.dataclass(frozen=True)
class Decision:
    """What is known of one pair."""

    first: str
    second: str
    verdict: str  # first is "larger", "smaller", "equal" (not told apart), or yet "undecided"
    interim: int  # when it was decided; for an undecided pair, the last one looked at
    difference: float  # mean of first - mean of second, over the runs that were looked at

    def __str__(self) -> str:
        said = {
            "larger": "scores higher than",
            "smaller": "scores lower than",
            "equal": "is not told apart from",
            "undecided": "is yet undecided against",
        }
        return f"{self.first} {said[self.verdict]} {self.second} (by {self.difference:+.4g})"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All pairs, and who has to train on."""

    decisions: tuple[Decision, ...]
    next_runs: dict[str, int]  # fresh runs needed before the next look; empty when finished
    finished: bool
    interim: int  # looks taken
    boundaries: tuple[float, ...]  # at each look, for all pairs then undecided together
    runs: dict[str, int]  # runs of each algorithm that were used
    alpha: float
    interims: int
    per_interim: int
    note: str = ""  # what was done about failed runs

    def __str__(self) -> str:
        lines = [str(decision) for decision in self.decisions]
        if not self.finished:
            wanted = ", ".join(f"{count} of {name}" for name, count in self.next_runs.items())
            lines.append(f"next runs: {wanted}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Plain values under the fields' names."""
        return dataclasses.asdict(self)


def compare(
    scores_by_name: Mapping[str, Given],
    *,
    alpha: float = 0.05,
    interims: int = 5,
    per_interim: int = 5,
    pairs: Sequence[tuple[str, str]] | None = None,
    key: int = 0,
    failed: Failed = None,
    draws: int = 10_000,
) -> Comparison:
    """Decide between algorithms from all runs so far, oldest first; higher scores are better.

    A pure function: called again with more runs it first comes to the same decisions as before.
    ``scores_by_name``: ``(run,)`` scores, or ``(run, task)`` whose means over tasks are compared.
    ``interims``: looks at most; ``per_interim``: fresh runs of each algorithm for each look;
    ``pairs``: the comparisons wanted, by default all. Runs beyond the last look are passed over.
    ``failed``: NaN as a number; "exclude" would let luck choose the runs and is refused.

    Raises Mistake where ``per_interim`` runs can never reach ``alpha`` within ``interims``.
    """
    plan = _Plan.of(
        scores_by_name,
        pairs,
        failed,
        alpha=alpha,
        interims=interims,
        n=per_interim,
        key=key,
        draws=draws,
    )
    state = _State(plan)
    lacking = state.lacking()
    while not lacking and state.look():
        lacking = state.lacking()
    return state.told(lacking)


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What is compared, and how strictly; names in alphabetical order, so that order is nothing."""

    names: tuple[str, ...]
    runs: tuple[np.ndarray, ...]
    pairs: tuple[Pair, ...]
    shown: tuple[tuple[str, str], ...]  # the pairs as asked for
    alpha: float
    interims: int
    n: int
    key: int
    draws: int
    note: str

    @classmethod
    def of(
        cls,
        given: Mapping[str, Given],
        wanted: Sequence[tuple[str, str]] | None,
        failed: Failed,
        *,
        alpha: float,
        interims: int,
        n: int,
        key: int,
        draws: int,
    ) -> _Plan:
        if len(given) < 2:
            raise Mistake(f"nothing to compare: {len(given)} algorithm; give two or more")
        if not 0.0 < alpha < 1.0 or interims < 1 or n < 1:
            raise Mistake("compare needs alpha in (0, 1), interims >= 1 and per_interim >= 1")
        if failed == "exclude":
            raise Mistake("compare cannot leave failed runs out; say failed=<what they count as>")
        names = tuple(sorted(given))
        listed = list(given)
        shown = wanted or [(a, b) for i, a in enumerate(listed) for b in listed[i + 1 :]]
        lost = [name for pair in shown for name in pair if name not in given]
        if lost:
            raise Mistake(f"no scores of {lost[0]!r}; there are {', '.join(listed)}")
        pairs = tuple((min(i, j), max(i, j)) for i, j in _indices(shown, names))
        samples = [sample(given[name], failed) for name in names if _size(given[name])]
        notes = sorted({made.note for made in samples if made.note})
        runs = tuple(_row_means(given[name], failed) for name in names)
        plan = cls(
            names, runs, pairs, tuple(shown), alpha, interims, n, key, draws, "; ".join(notes)
        )
        plan.check()
        return plan

    def check(self) -> None:
        """Raises Mistake where not even complete separation could ever be decided."""
        least = 2.0 / math.comb(2 * self.n, self.n) ** self.interims
        if least > self.alpha * (1.0 + 1e-9):
            raise Mistake(
                f"{self.n} runs of each in {self.interims} look(s) never show a difference at "
                f"alpha={self.alpha:g} (least level {least:.2g}); take more runs"
            )


class _State:
    """The comparison after some looks."""

    def __init__(self, plan: _Plan):
        self.plan, self.interim = plan, 0
        self.boundaries: list[float] = []
        self.verdicts: dict[Pair, tuple[int, float]] = {}  # pair -> when, and the difference
        self.hypotheses = [_Hypothesis(g, plan) for g in hypotheses(len(plan.names), plan.pairs)]
        self.laws: dict[tuple[Group, bool], Law] = {}

    def undecided(self) -> list[Pair]:
        """Pairs that some grouping still calls equal."""
        return [pair for pair in self.plan.pairs if pair not in self.verdicts]

    def lacking(self) -> dict[str, int]:
        """Runs missing for the next look; nothing when there is none to come."""
        if self.interim == self.plan.interims:
            return {}
        wanted = (self.interim + 1) * self.plan.n
        active = sorted({member for pair in self.undecided() for member in pair})
        short = {self.plan.names[i]: wanted - self.plan.runs[i].size for i in active}
        return {name: count for name, count in short.items() if count > 0}

    def look(self) -> bool:
        """Take the next block of every undecided algorithm; False if there is none to take."""
        plan = self.plan
        if self.interim == plan.interims or not self.undecided():
            return False
        open_ones = [one for one in self.hypotheses if not one.rejected]
        self._advance(open_ones)
        self.interim += 1
        widest = max(open_ones, key=lambda one: len(one.pairs))
        for one in open_ones:
            one.test([self.laws[group, one.exact] for group in one.groups], self.interim, plan)
        self.boundaries.append(widest.boundary)
        still = {pair for one in self.hypotheses if not one.rejected for pair in one.pairs}
        for pair in self.undecided():
            if pair not in still:
                self.verdicts[pair] = (self.interim, self._difference(pair))
        return True

    def told(self, lacking: dict[str, int]) -> Comparison:
        """The answer so far."""
        plan, finished = self.plan, not lacking
        used = {name: 0 for name in plan.names}
        decisions = []
        for shown, pair in zip(plan.shown, plan.pairs, strict=True):
            interim, difference = self.verdicts.get(pair, (self.interim, self._difference(pair)))
            sign = 1.0 if plan.names[pair[0]] == shown[0] else -1.0
            verdict = "larger" if sign * difference > 0 else "smaller"
            if pair not in self.verdicts:
                verdict = "equal" if finished else "undecided"
            decisions.append(Decision(*shown, verdict, interim, sign * difference))
            for name in shown:
                used[name] = max(used[name], interim * plan.n)
        return Comparison(
            tuple(decisions), lacking, finished, self.interim, tuple(self.boundaries), used,
            plan.alpha, plan.interims, plan.n, plan.note,
        )  # fmt: skip

    def _advance(self, open_ones: list[_Hypothesis]) -> None:
        """Give the laws that are needed their next block."""
        needed = {(group, one.exact): one.rows for one in open_ones for group in one.groups}
        plan, start = self.plan, self.interim * self.plan.n
        for (group, exact), rows in needed.items():
            law = self.laws.setdefault(
                (group, exact), Law(group, plan.names, plan.n, rows, plan.key)
            )
            block = np.stack([plan.runs[member][start : start + plan.n] for member in group])
            law.advance(block, exact and self.interim == 0)

    def _difference(self, pair: Pair) -> float:
        """Mean of the first - mean of the second, over the runs looked at."""
        first, second = (self.plan.runs[i][: self.interim * self.plan.n] for i in pair)
        return float(first.mean() - second.mean()) if self.interim else 0.0


class _Hypothesis:
    """One grouping, and which of its sequences have crossed no boundary."""

    def __init__(self, groups: tuple[Group, ...], plan: _Plan):
        self.groups, self.pairs = groups, inside(groups, plan.pairs)
        alone = len(groups) == 1 and len(groups[0]) == 2
        self.rows, self.exact = rows_of(plan.n, plan.interims, alone, plan.draws)
        self.alive = np.ones(self.rows, bool)
        self.rejected, self.boundary = False, 0.0

    def test(self, laws: list[Law], interim: int, plan: _Plan) -> None:
        """Spend the level of one more interim."""
        statistic: Float[np.ndarray, "row"] = np.max([law.largest(self.pairs) for law in laws], 0)
        spent = self.rows - int(self.alive.sum())
        allowed = int(plan.alpha * interim / plan.interims * self.rows + 1e-9) - spent
        self.boundary, crossed = cross(statistic, self.alive, allowed)
        self.rejected = bool(crossed[0])
        self.alive &= ~crossed


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
