"""Decide pairs, look after look, by closed testing of their tendencies.

Every grouping of the algorithms that calls some pair equal is a hypothesis. Its statistic is the
largest |z| of its pairs (``tendency.py``), its law that of exchanged runs (``permutation_law.py``),
given that no earlier boundary was crossed. Boundary k is the smallest that lets at most ``alpha k /
interims`` of all sequences cross by then (Mathieu et al. 2024). A pair is decided once every
hypothesis that calls it equal is rejected (Marcus, Peritz & Gabriel 1976).

A hypothesis is not tested while even complete separation would be too likely by chance: see
``tendency.can_decide``; its level is spent later.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from sterling.statistics.comparisons.comparison_plan import ComparisonPlan
from sterling.statistics.comparisons.comparison_result import Comparison, Decision, critical_z
from sterling.statistics.comparisons.permutation_law import (
    RELATIVE_ROUNDING,
    Group,
    Pair,
    PermutationLaw,
    find_boundary,
    joint_hypotheses,
    pairs_within_groups,
    sequence_count,
)
from sterling.statistics.comparisons.tendency import (
    can_decide,
    floor_permits,
    min_runs_to_decide,
    probability_estimate,
    sign_test_floor,
)
from sterling.types import Mistake


def decide(plan: ComparisonPlan) -> Comparison:
    """Take every look for which there are enough runs, and return the decisions.

    Raises Mistake for a plan whose last look could not decide anything.
    """
    state = _ComparisonState(plan)
    _check_decidable(plan, state)
    missing = state.missing_runs()
    while not missing and state.take_look():
        missing = state.missing_runs()
    return state.comparison(missing)


def _check_decidable(plan: ComparisonPlan, state: _ComparisonState) -> None:
    """Raise Mistake where not even complete separation could be decided."""
    others = max(one.others for one in state.hypotheses)
    members = {member for pair in plan.pairs for member in pair}
    most = min(plan.run_count(member, plan.interims) for member in members)
    if not can_decide(most, plan.alpha, others):
        least = min_runs_to_decide(plan.alpha, others)
        raise Mistake(
            f"{most} runs of each in {plan.interims} look(s) cannot decide anything among "
            f"{others + 1} algorithms at alpha={plan.alpha:g}; take at least {least} runs of each"
        )


class _ComparisonState:
    """The state of a comparison after some looks."""

    def __init__(self, plan: ComparisonPlan):
        self.plan, self.interim = plan, 0
        self.boundaries: list[float] = []
        self.verdicts: dict[Pair, int] = {}  # pair -> the look that decided it
        self.hypotheses = [
            _Hypothesis(g, plan) for g in joint_hypotheses(len(plan.names), plan.pairs)
        ]
        self.laws: dict[tuple[Group, bool], PermutationLaw] = {}
        self.reach: dict[Pair, float] = {}  # the |z| needed to decide the pair, when last tested

    def undecided_pairs(self) -> list[Pair]:
        """Return the pairs that some hypothesis not yet rejected calls equal."""
        return [pair for pair in self.plan.pairs if pair not in self.verdicts]

    def missing_runs(self) -> dict[str, int]:
        """Count the runs missing for the next look, by name; empty where no look remains."""
        if self.interim == self.plan.interims:
            return {}
        active = sorted({member for pair in self.undecided_pairs() for member in pair})
        return self.plan.missing_runs(active, self.interim + 1)

    def take_look(self) -> bool:
        """Take the next look at all undecided algorithms; return False if there is none to take."""
        plan = self.plan
        if self.interim == plan.interims or not self.undecided_pairs():
            return False
        open_ones = [one for one in self.hypotheses if not one.rejected]
        self._advance_laws(open_ones)
        self.interim += 1
        testable = [one for one in open_ones if one.testable(self.interim, plan)]
        scores = self._pair_statistics(testable)
        floors = {pair: sign_test_floor(*self._runs_seen(pair)) for pair in self.undecided_pairs()}
        widest = max(open_ones, key=lambda one: len(one.pairs))
        for one in testable:
            one.test([scores[group, one.exact] for group in one.groups], floors, self.interim, plan)
        self.boundaries.append(widest.boundary)
        self._record_decisions(open_ones)
        return True

    def _record_decisions(self, tested: list[_Hypothesis]) -> None:
        """Record which pairs the look decided, and the |z| that each pair needed."""
        called_equal = {pair for one in self.hypotheses if not one.rejected for pair in one.pairs}
        for pair in self.undecided_pairs():
            reach = [one.boundary for one in tested if pair in one.pairs]
            self.reach[pair] = max(reach)
            if pair not in called_equal:
                self.verdicts[pair] = self.interim

    def comparison(self, missing: dict[str, int]) -> Comparison:
        """Return the comparison so far."""
        plan, finished = self.plan, not missing
        used = {name: 0 for name in plan.names}
        decisions = []
        for shown, pair in zip(plan.shown, plan.pairs, strict=True):
            interim = self.verdicts.get(pair, self.interim)
            decisions.append(self._pair_decision(shown, pair, interim, finished))
            for member in pair:
                name = plan.names[member]
                used[name] = max(used[name], plan.run_count(member, interim))
        return Comparison(
            tuple(decisions), missing, finished, self.interim, tuple(self.boundaries), used,
            plan.alpha, plan.interims, plan.per_interim, plan.note,
        )  # fmt: skip

    def _pair_decision(
        self, shown: tuple[str, str], pair: Pair, interim: int, finished: bool
    ) -> Decision:
        """Return the decision on a pair, in the order in which the caller named it."""
        if not interim:
            return Decision(*shown, "undecided", 0, 0.0)
        members = pair if self.plan.names[pair[0]] == shown[0] else pair[::-1]
        first, second = (self.plan.runs_seen(member, interim) for member in members)
        verdict = "equal" if finished else "undecided"
        if pair in self.verdicts:
            share = (first[:, None] > second).mean() - (first[:, None] < second).mean()
            verdict = "larger" if share > 0.0 else "smaller"
        reach = self.reach[pair]
        if not math.isfinite(reach):  # too few runs to be tested yet
            reach = critical_z(self.plan.alpha_spent(interim))
        better = probability_estimate(
            first, second, boundary=reach, verdict=verdict, level=1.0 - self.plan.alpha
        )
        return Decision(*shown, verdict, interim, float(first.mean() - second.mean()), better)

    def _advance_laws(self, open_ones: list[_Hypothesis]) -> None:
        """Give each permutation law that is needed its next runs."""
        needed = {(group, one.exact): one.rows for one in open_ones for group in one.groups}
        plan = self.plan
        for (group, exact), rows in needed.items():
            law = self.laws.setdefault(
                (group, exact), PermutationLaw(group, plan.names, rows, plan.key)
            )
            blocks = [plan.new_runs(member, self.interim) for member in group]
            law.advance(blocks, exact and self.interim == 0)

    def _pair_statistics(
        self, tested: list[_Hypothesis]
    ) -> dict[tuple[Group, bool], PairStatistics]:
        """Return the statistics of all pairs in the groups that are tested."""
        needed = {(group, one.exact) for one in tested for group in one.groups}
        return {which: self.laws[which].scores(self.plan.pairs) for which in sorted(needed)}

    def _runs_seen(self, pair: Pair) -> tuple[np.ndarray, np.ndarray]:
        """Return the runs of both members of a pair up to this look."""
        first, second = (self.plan.runs_seen(member, self.interim) for member in pair)
        return first, second


PairStatistics = dict[Pair, Float[np.ndarray, "row"]]


class _Hypothesis:
    """A grouping of the algorithms, and which of its permuted sequences crossed no boundary yet."""

    def __init__(self, groups: tuple[Group, ...], plan: ComparisonPlan):
        self.groups, self.pairs = groups, pairs_within_groups(groups, plan.pairs)
        self.members = [member for group in groups for member in group]
        self.others = len(self.members) - len(groups)  # each may be separated by chance
        sizes = [plan.run_count(member, 1) for member in groups[0]]
        alone = sizes if len(groups) == 1 else []
        self.rows, self.exact = sequence_count(alone, plan.interims, plan.draws)
        self.alive = np.ones(self.rows, bool)
        self.rejected, self.boundary = False, math.inf

    def testable(self, looks: int, plan: ComparisonPlan) -> bool:
        """Whether after so many looks there are enough runs to decide anything."""
        runs = min(plan.run_count(member, looks) for member in self.members)
        return can_decide(runs, plan.alpha_spent(looks), self.others)

    def test(
        self,
        scores: list[PairStatistics],
        floors: dict[Pair, float],
        looks: int,
        plan: ComparisonPlan,
    ) -> None:
        """Test at one more look. ``floors`` holds the smallest possible chance of each pair."""
        level = plan.alpha_spent(looks)
        found = {pair: rows for part in scores for pair, rows in part.items()}
        spent = self.rows - int(self.alive.sum())
        may_cross = int(level * self.rows + 1e-9) - spent
        statistic: Float[np.ndarray, "row"] = np.max(list(found.values()), 0)
        self.boundary, crossed = find_boundary(statistic, self.alive, may_cross)
        seen = [
            float(found[pair][0])
            for pair in self.pairs
            if floor_permits(floors.get(pair, 0.0), level, self.others)
        ]
        beyond = self.boundary + RELATIVE_ROUNDING * abs(self.boundary)
        self.rejected = bool(crossed[0]) and max(seen, default=0.0) > beyond
        self.alive &= ~crossed
        self.alive[0] = not self.rejected
