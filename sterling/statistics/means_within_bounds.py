"""Which of several algorithms has the higher mean, where the scores' bounds are known.

Of few runs nothing can be said about a mean unless the scores are bounded: a collapse that no run
showed can pull it down as far as one likes (Bahadur & Savage 1956). Within bounds the interval of
Learned-Miller & Thomas (``bounded.py``) holds the mean of every distribution. At every look each
algorithm's interval gets the level ``alpha / (looks x algorithms)``, so with probability
1 - alpha all intervals of all looks hold at once. Then every difference lies in

    [low of first - high of second,  high of first - low of second]

and a pair is decided once this excludes 0. The chance of *any* wrong verdict is therefore at most
``alpha`` under every distribution within the bounds. Few runs will often stay undecided.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from sterling.statistics.bounded import bounded_mean
from sterling.statistics.comparison import Comparison, Decision, half
from sterling.statistics.interval import Estimate
from sterling.statistics.permutation import Pair
from sterling.statistics.plan import Plan
from sterling.statistics.tendency import FEWEST, probability
from sterling.types import Mistake

METHOD = "Learned-Miller & Thomas, of both; for all looks and algorithms at once"


def decide(plan: Plan) -> Comparison:
    """Take every look for which the runs are there, and say what is known.

    Raises Mistake where the last look has too few runs.
    """
    members = sorted({member for pair in plan.pairs for member in pair})
    most = min(plan.counted(member, plan.interims) for member in members)
    if most < FEWEST:
        raise Mistake(f"{most} runs of each can decide nothing; take at least {FEWEST} of each")
    decided: dict[Pair, Decision] = {}
    known: dict[Pair, Decision] = {}
    interim = 0
    while interim < plan.interims:
        active = sorted({member for pair in plan.pairs if pair not in decided for member in pair})
        if not active or plan.lacking(active, interim + 1):
            break
        interim += 1
        for shown, pair in zip(plan.shown, plan.pairs, strict=True):
            if pair not in decided:
                known[pair] = _decision(plan, shown, pair, interim)
        enough = min(plan.counted(member, interim) for member in active) >= FEWEST
        decided |= {p: one for p, one in known.items() if one.verdict != "undecided" and enough}
    active = sorted({member for pair in plan.pairs if pair not in decided for member in pair})
    lacking = plan.lacking(active, interim + 1) if interim < plan.interims else {}
    return _told(plan, decided, known, interim, lacking)


def _told(
    plan: Plan,
    decided: dict[Pair, Decision],
    known: dict[Pair, Decision],
    interim: int,
    lacking: dict[str, int],
) -> Comparison:
    """The answer so far."""
    used = {name: 0 for name in plan.names}
    decisions = []
    rest = "undecided" if lacking else "equal"
    for shown, pair in zip(plan.shown, plan.pairs, strict=True):
        one = decided.get(pair) or known.get(pair)
        if one is None:
            one = Decision(*shown, "undecided", 0, 0.0, about="mean")
        if pair not in decided:
            one = dataclasses.replace(one, verdict=rest)
        decisions.append(one)
        for member in pair:
            name = plan.names[member]
            used[name] = max(used[name], plan.counted(member, one.interim))
    return Comparison(
        tuple(decisions), lacking, not lacking, interim, (), used,
        plan.alpha, plan.interims, plan.per_interim, plan.note, "mean",
    )  # fmt: skip


def _decision(plan: Plan, shown: tuple[str, str], pair: Pair, interim: int) -> Decision:
    """A pair as it was asked for, by the interval of its difference at this look."""
    members = pair if plan.names[pair[0]] == shown[0] else pair[::-1]
    first, second = (plan.seen(member, interim) for member in members)
    means = difference(first, second, plan)
    assert means.low is not None
    assert means.high is not None
    verdict = "larger" if means.low > 0.0 else "smaller" if means.high < 0.0 else "undecided"
    boundary = half(plan.alpha / plan.interims / len(plan.pairs))
    better = probability(
        first, second, boundary=boundary, verdict="undecided", level=1.0 - plan.alpha
    )
    return Decision(*shown, verdict, interim, means.value, better, means, "mean")


def difference(first: np.ndarray, second: np.ndarray, plan: Plan) -> Estimate:
    """The difference of two means, with the interval that holds for all looks and algorithms."""
    assert plan.within is not None
    members = len({member for pair in plan.pairs for member in pair})
    level = 1.0 - plan.alpha / (plan.interims * members)
    kept = [np.clip(runs, *plan.within) for runs in (first, second)]  # sums round beyond a bound
    ends = [bounded_mean(runs, *plan.within, level) for runs in kept]
    low, high = (float(ends[0][at] - ends[1][1 - at]) for at in (0, 1))
    value = math.fsum([float(first.mean()), -float(second.mean())])
    return Estimate(value, low, high, min(first.size, second.size), METHOD, 1.0 - plan.alpha)
