"""Decide which of several algorithms has the higher mean, where the scores' bounds are known.

Few runs say nothing about a mean unless the scores are bounded: a collapse that no run showed can
lower it without limit (Bahadur & Savage 1956). Within bounds the interval of Learned-Miller &
Thomas (``bounded_mean.py``) contains the mean of every distribution. At every look each algorithm's
interval gets the level ``alpha / (looks x algorithms)``, so with probability 1 - alpha all
intervals of all looks hold at once. Then every difference lies in

    [low of first - high of second,  high of first - low of second]

and a pair is decided once this excludes 0. The chance of *any* wrong verdict is therefore at most
``alpha`` under every distribution within the bounds. Few runs will often stay undecided.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from sterling.statistics.comparisons.comparison_plan import ComparisonPlan
from sterling.statistics.comparisons.comparison_result import Comparison, Decision, critical_z
from sterling.statistics.comparisons.permutation_law import Pair
from sterling.statistics.comparisons.tendency import MIN_RUNS, probability_estimate
from sterling.statistics.intervals.bounded_mean import bounded_mean
from sterling.statistics.intervals.estimates import Estimate
from sterling.types import Mistake

METHOD = "Learned-Miller & Thomas, of both; for all looks and algorithms at once"


def decide(plan: ComparisonPlan) -> Comparison:
    """Take every look for which there are enough runs, and return the decisions.

    Raises Mistake where even the last look has too few runs.
    """
    members = sorted({member for pair in plan.pairs for member in pair})
    most = min(plan.run_count(member, plan.interims) for member in members)
    if most < MIN_RUNS:
        raise Mistake(
            f"{most} runs of each cannot decide anything; use at least {MIN_RUNS} of each"
        )
    decided: dict[Pair, Decision] = {}
    known: dict[Pair, Decision] = {}
    interim = 0
    while interim < plan.interims:
        active = sorted({member for pair in plan.pairs if pair not in decided for member in pair})
        if not active or plan.missing_runs(active, interim + 1):
            break
        interim += 1
        for shown, pair in zip(plan.shown, plan.pairs, strict=True):
            if pair not in decided:
                known[pair] = _decide_pair(plan, shown, pair, interim)
        enough = min(plan.run_count(member, interim) for member in active) >= MIN_RUNS
        decided |= {p: one for p, one in known.items() if one.verdict != "undecided" and enough}
    active = sorted({member for pair in plan.pairs if pair not in decided for member in pair})
    missing = plan.missing_runs(active, interim + 1) if interim < plan.interims else {}
    return _comparison_so_far(plan, decided, known, interim, missing)


def _comparison_so_far(
    plan: ComparisonPlan,
    decided: dict[Pair, Decision],
    known: dict[Pair, Decision],
    interim: int,
    missing: dict[str, int],
) -> Comparison:
    """Return the comparison after ``interim`` looks; ``missing`` counts the runs still missing."""
    used = {name: 0 for name in plan.names}
    decisions = []
    rest = "undecided" if missing else "equal"
    for shown, pair in zip(plan.shown, plan.pairs, strict=True):
        one = decided.get(pair) or known.get(pair)
        if one is None:
            one = Decision(*shown, "undecided", 0, 0.0, about="mean")
        if pair not in decided:
            one = dataclasses.replace(one, verdict=rest)
        decisions.append(one)
        for member in pair:
            name = plan.names[member]
            used[name] = max(used[name], plan.run_count(member, one.interim))
    return Comparison(
        tuple(decisions), missing, not missing, interim, (), used,
        plan.alpha, plan.interims, plan.per_interim, plan.note, "mean",
    )  # fmt: skip


def _decide_pair(
    plan: ComparisonPlan, shown: tuple[str, str], pair: Pair, interim: int
) -> Decision:
    """Return the decision on a pair at this look, in the order in which the caller named it."""
    members = pair if plan.names[pair[0]] == shown[0] else pair[::-1]
    first, second = (plan.runs_seen(member, interim) for member in members)
    means = difference_of_means(first, second, plan)
    assert means.low is not None
    assert means.high is not None
    verdict = "larger" if means.low > 0.0 else "smaller" if means.high < 0.0 else "undecided"
    boundary = critical_z(plan.alpha / plan.interims / len(plan.pairs))
    better = probability_estimate(
        first, second, boundary=boundary, verdict="undecided", level=1.0 - plan.alpha
    )
    return Decision(*shown, verdict, interim, means.value, better, means, "mean")


def difference_of_means(first: np.ndarray, second: np.ndarray, plan: ComparisonPlan) -> Estimate:
    """Return the difference of two means, with an interval for all looks and algorithms."""
    assert plan.within is not None
    members = len({member for pair in plan.pairs for member in pair})
    level = 1.0 - plan.alpha / (plan.interims * members)
    kept = [np.clip(runs, *plan.within) for runs in (first, second)]  # rounding may exceed bounds
    ends = [bounded_mean(runs, *plan.within, level) for runs in kept]
    low, high = (float(ends[0][at] - ends[1][1 - at]) for at in (0, 1))
    value = math.fsum([float(first.mean()), -float(second.mean())])
    return Estimate(value, low, high, min(first.size, second.size), METHOD, 1.0 - plan.alpha)
