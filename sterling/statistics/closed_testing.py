"""Look after look, pairs are decided by closed testing of their tendencies.

Every grouping of the algorithms that calls some pair equal is a hypothesis. Its statistic is the
largest |z| of its pairs (``tendency.py``), its law that of exchanged runs (``permutation.py``),
given that no earlier boundary was crossed. Boundary k is the smallest that lets at most
``alpha k / interims`` of all sequences cross by then (Mathieu et al. 2024). A pair is decided once
every hypothesis that calls it equal is rejected (Marcus, Peritz & Gabriel 1976).

A hypothesis is not tested while even complete separation would be too likely by bad luck: see
``tendency.can_decide``; its level is spent later.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from sterling.statistics.comparison import Comparison, Decision, half
from sterling.statistics.permutation import (
    ROUNDING,
    Group,
    Law,
    Pair,
    cross,
    hypotheses,
    inside,
    rows_of,
)
from sterling.statistics.plan import Plan
from sterling.statistics.tendency import allowed, can_decide, floor, least_runs, probability
from sterling.types import Mistake


def decide(plan: Plan) -> Comparison:
    """Take every look for which the runs are there, and say what is known.

    Raises Mistake for a plan whose last look could not decide anything.
    """
    state = _State(plan)
    _check(plan, state)
    lacking = state.lacking()
    while not lacking and state.look():
        lacking = state.lacking()
    return state.told(lacking)


def _check(plan: Plan, state: _State) -> None:
    """Raises Mistake where not even complete separation could ever be decided."""
    others = max(one.others for one in state.hypotheses)
    members = {member for pair in plan.pairs for member in pair}
    most = min(plan.counted(member, plan.interims) for member in members)
    if not can_decide(most, plan.alpha, others):
        least = least_runs(plan.alpha, others)
        raise Mistake(
            f"{most} runs of each in {plan.interims} look(s) can decide nothing among "
            f"{others + 1} algorithms at alpha={plan.alpha:g}; take at least {least} runs of each"
        )


class _State:
    """The comparison after some looks."""

    def __init__(self, plan: Plan):
        self.plan, self.interim = plan, 0
        self.boundaries: list[float] = []
        self.verdicts: dict[Pair, int] = {}  # pair -> the look that decided it
        self.hypotheses = [_Hypothesis(g, plan) for g in hypotheses(len(plan.names), plan.pairs)]
        self.laws: dict[tuple[Group, bool], Law] = {}
        self.reach: dict[Pair, float] = {}  # the |z| that deciding the pair took when last tested

    def undecided(self) -> list[Pair]:
        """Pairs that some grouping still calls equal."""
        return [pair for pair in self.plan.pairs if pair not in self.verdicts]

    def lacking(self) -> dict[str, int]:
        """Runs missing for the next look; nothing when there is none to come."""
        if self.interim == self.plan.interims:
            return {}
        active = sorted({member for pair in self.undecided() for member in pair})
        return self.plan.lacking(active, self.interim + 1)

    def look(self) -> bool:
        """Take the next block of every undecided algorithm; False if there is none to take."""
        plan = self.plan
        if self.interim == plan.interims or not self.undecided():
            return False
        open_ones = [one for one in self.hypotheses if not one.rejected]
        self._advance(open_ones)
        self.interim += 1
        testable = [one for one in open_ones if one.testable(self.interim, plan)]
        scores = self._scores(testable)
        floors = {pair: floor(*self._seen(pair)) for pair in self.undecided()}
        widest = max(open_ones, key=lambda one: len(one.pairs))
        for one in testable:
            one.test([scores[group, one.exact] for group in one.groups], floors, self.interim, plan)
        self.boundaries.append(widest.boundary)
        self._settle(open_ones)
        return True

    def _settle(self, tested: list[_Hypothesis]) -> None:
        """Note what the look decided, and how far a pair had to reach for it."""
        still = {pair for one in self.hypotheses if not one.rejected for pair in one.pairs}
        for pair in self.undecided():
            reach = [one.boundary for one in tested if pair in one.pairs]
            self.reach[pair] = max(reach)
            if pair not in still:
                self.verdicts[pair] = self.interim

    def told(self, lacking: dict[str, int]) -> Comparison:
        """The answer so far."""
        plan, finished = self.plan, not lacking
        used = {name: 0 for name in plan.names}
        decisions = []
        for shown, pair in zip(plan.shown, plan.pairs, strict=True):
            interim = self.verdicts.get(pair, self.interim)
            decisions.append(self._decision(shown, pair, interim, finished))
            for member in pair:
                name = plan.names[member]
                used[name] = max(used[name], plan.counted(member, interim))
        return Comparison(
            tuple(decisions), lacking, finished, self.interim, tuple(self.boundaries), used,
            plan.alpha, plan.interims, plan.per_interim, plan.note,
        )  # fmt: skip

    def _decision(
        self, shown: tuple[str, str], pair: Pair, interim: int, finished: bool
    ) -> Decision:
        """A pair as it was asked for."""
        if not interim:
            return Decision(*shown, "undecided", 0, 0.0)
        members = pair if self.plan.names[pair[0]] == shown[0] else pair[::-1]
        first, second = (self.plan.seen(member, interim) for member in members)
        verdict = "equal" if finished else "undecided"
        if pair in self.verdicts:
            share = (first[:, None] > second).mean() - (first[:, None] < second).mean()
            verdict = "larger" if share > 0.0 else "smaller"
        reach = self.reach[pair]
        if not math.isfinite(reach):  # too few runs to be tested yet
            reach = half(self.plan.level(interim))
        better = probability(
            first, second, boundary=reach, verdict=verdict, level=1.0 - self.plan.alpha
        )
        return Decision(*shown, verdict, interim, float(first.mean() - second.mean()), better)

    def _advance(self, open_ones: list[_Hypothesis]) -> None:
        """Give the laws that are needed their next block."""
        needed = {(group, one.exact): one.rows for one in open_ones for group in one.groups}
        plan = self.plan
        for (group, exact), rows in needed.items():
            law = self.laws.setdefault((group, exact), Law(group, plan.names, rows, plan.key))
            blocks = [plan.block(member, self.interim) for member in group]
            law.advance(blocks, exact and self.interim == 0)

    def _scores(self, tested: list[_Hypothesis]) -> dict[tuple[Group, bool], Scores]:
        """How clearly the pairs of the groups that are tested differ."""
        needed = {(group, one.exact) for one in tested for group in one.groups}
        return {which: self.laws[which].scores(self.plan.pairs) for which in sorted(needed)}

    def _seen(self, pair: Pair) -> tuple[np.ndarray, np.ndarray]:
        first, second = (self.plan.seen(member, self.interim) for member in pair)
        return first, second


Scores = dict[Pair, Float[np.ndarray, "row"]]


class _Hypothesis:
    """One grouping, and which of its sequences have crossed no boundary."""

    def __init__(self, groups: tuple[Group, ...], plan: Plan):
        self.groups, self.pairs = groups, inside(groups, plan.pairs)
        self.members = [member for group in groups for member in group]
        self.others = len(self.members) - len(groups)  # each may be separated by bad luck
        sizes = [plan.counted(member, 1) for member in groups[0]]
        alone = sizes if len(groups) == 1 else []
        self.rows, self.exact = rows_of(alone, plan.interims, plan.draws)
        self.alive = np.ones(self.rows, bool)
        self.rejected, self.boundary = False, math.inf

    def testable(self, looks: int, plan: Plan) -> bool:
        """Whether so many looks have taken enough runs to decide anything."""
        runs = min(plan.counted(member, looks) for member in self.members)
        return can_decide(runs, plan.level(looks), self.others)

    def test(self, scores: list[Scores], floors: dict[Pair, float], looks: int, plan: Plan) -> None:
        """Spend the level of one more look. ``floors``: the least chance of each pair."""
        level = plan.level(looks)
        found = {pair: rows for part in scores for pair, rows in part.items()}
        spent = self.rows - int(self.alive.sum())
        may_cross = int(level * self.rows + 1e-9) - spent
        statistic: Float[np.ndarray, "row"] = np.max(list(found.values()), 0)
        self.boundary, crossed = cross(statistic, self.alive, may_cross)
        seen = [
            float(found[pair][0])
            for pair in self.pairs
            if allowed(floors.get(pair, 0.0), level, self.others)
        ]
        beyond = self.boundary + ROUNDING * abs(self.boundary)
        self.rejected = bool(crossed[0]) and max(seen, default=0.0) > beyond
        self.alive &= ~crossed
        self.alive[0] = not self.rejected
