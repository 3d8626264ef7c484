"""Many comparisons at once, by the rules of ``compare``; a few of each are checked against it.

Without ties the law of one look depends on the numbers of runs alone, so its boundaries are taken
from one comparison and all trials are held against them. With ties, and with several looks, every
trial is a call of ``compare``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tendencies import Law

from sterling.statistics import compare
from sterling.statistics.comparisons import closed_testing, tendency
from sterling.statistics.comparisons.comparison_plan import make_plan
from sterling.statistics.intervals.bounded_mean import bounded_mean
from sterling.types import Mistake

ALPHA, EXCHANGES = 0.05, 1_100
AT_ONCE = 5  # times the trials, where they are simulated at once
CHECKED = 20  # trials that are also given to compare itself
NAMES = "abcd"
Cell = dict[str, Any]


def drawn(laws: tuple[Law, ...], size: int, trial: int) -> dict[str, np.ndarray]:
    """The runs of every algorithm in one trial."""
    rng = np.random.default_rng([trial, size, 5])
    return {name: law(rng, size) for name, law in zip(NAMES, laws, strict=False)}


def one_look(laws: tuple[Law, ...], n: int, trials: int) -> Cell:
    """The share of comparisons of n runs each with any verdict."""
    first = np.concatenate(list(drawn(laws, n, 0).values()))
    tied = np.unique(first).size < first.size
    trials = trials if tied else AT_ONCE * trials
    many = [drawn(laws, n, trial) for trial in range(trials)]
    try:
        if tied:
            seen = [bool(_verdicts(runs, n)) for runs in many]
        else:
            seen = at_once(many, n).any(1).tolist()
            _agree([bool(_verdicts(runs, n)) for runs in many[:CHECKED]], seen)
    except Mistake:  # so few runs can decide nothing
        return {"decided": 0.0, "runs": n, "trials": 0}
    return {"decided": float(np.mean(seen)), "runs": n, "trials": len(seen)}


def looks(
    laws: tuple[Law, ...], count: int, n: int, trials: int, exchanges: int = EXCHANGES
) -> Cell:
    """The same over several looks, and the runs of each that it took."""
    seen, used = 0, []
    for trial in range(trials):
        runs = drawn(laws, count * n, trial)
        made = compare(runs, interims=count, per_interim=n, key=trial, draws=exchanges)
        seen += any(one.verdict in ("larger", "smaller") for one in made.decisions)
        used.append(float(np.mean(list(made.runs.values()))))
    return {"decided": seen / trials, "runs": float(np.mean(used)), "trials": trials}


def at_once(many: list[dict[str, np.ndarray]], n: int) -> np.ndarray:
    """Which pair is decided in which trial, by closed testing in one look, (trial, pair)."""
    state = looked(many[0], n)
    pairs = state.plan.pairs
    scores, floors = {}, {}
    for pair in pairs:
        both = [[runs[NAMES[member]] for member in pair] for runs in many]
        scores[pair] = _scores(np.array([np.concatenate(two) for two in both]), n)
        floors[pair] = np.array([tendency.sign_test_floor(*two) for two in both])
    open_ones = np.zeros((len(many), len(pairs)), bool)
    for one in state.hypotheses:
        beyond = np.zeros(len(many), bool)
        for pair in one.pairs:
            may = one.others * floors[pair] <= tendency.FLOOR_SLACK * ALPHA * (1 + 1e-9)
            beyond |= may & (scores[pair] > one.boundary * (1 + 1e-9))
        for pair in one.pairs:
            open_ones[:, pairs.index(pair)] |= ~beyond
    return ~open_ones


def looked(runs: dict[str, np.ndarray], n: int) -> Any:
    """The closed testing of one comparison after its look."""
    plan = make_plan(
        runs, None, None, alpha=ALPHA, interims=1, per_interim=n, key=0,
        draws=20_000, within=None,
    )  # fmt: skip
    state = closed_testing._ComparisonState(plan)
    closed_testing._check_decidable(plan, state)
    state.take_look()
    return state


def _scores(values: np.ndarray, n: int) -> np.ndarray:
    """|z| of the first n against the last n of every row."""
    order = np.argsort(values, axis=1).T
    mine = tendency.exact_indicators(order < n)
    other = 1.0 - mine
    ranks = np.arange(2.0 * n)  # of no ties
    return tendency.normal_scores(
        mine, other, tendency.count_below(mine, ranks), tendency.count_below(other, ranks)
    )


def _verdicts(runs: dict[str, np.ndarray], n: int, **rest: Any) -> int:
    """How many pairs compare decides."""
    made = compare(runs, interims=1, per_interim=n, draws=EXCHANGES, **rest)
    return sum(one.verdict in ("larger", "smaller") for one in made.decisions)


def _agree(one_by_one: list[bool], at_once: list[bool]) -> None:
    """Fail where they differ in several trials; in some they may, for exchanges are drawn."""
    differ = sum(a != b for a, b in zip(one_by_one, at_once, strict=False))
    if differ > 3:
        raise SystemExit(f"all at once differs from compare in {differ} of {len(one_by_one)}")


def bounded(laws: tuple[Law, Law], count: int, n: int, trials: int) -> Cell:
    """about="mean" within (0, 2000): the share of comparisons with a verdict."""
    many = [drawn(laws, count * n, trial) for trial in range(trials)]
    stacked = [np.array([runs[name] for runs in many]).T for name in "ab"]
    level, decided = 1.0 - ALPHA / (2 * count), np.zeros(trials, bool)
    for look in range(1, count + 1):
        (a, b), (c, d) = (bounded_mean(x[: look * n], 0.0, 2000.0, level) for x in stacked)
        decided |= (a > d) | (c > b)
    for runs, seen in zip(many[:5], decided, strict=False):
        made = compare(
            runs, interims=count, per_interim=n, about="mean", within=(0.0, 2000.0)
        ).decisions[0]
        _agree([made.verdict in ("larger", "smaller")] * 4, [bool(seen)] * 4)
    return {"decided": float(decided.mean()), "runs": n, "trials": trials}


def held(laws: tuple[Law, Law], true: float, n: int, trials: int) -> Cell:
    """The share of intervals of P(first > second) that hold it, and their mean width."""
    many = [drawn(laws, n, trial) for trial in range(trials)]
    decided = at_once(many, n)[:, 0]
    reach = looked(many[0], n).reach[0, 1]
    made = []
    for runs, seen in zip(many, decided, strict=True):
        above = (runs["a"][:, None] > runs["b"]).mean() > 0.5
        verdict = ("larger" if above else "smaller") if seen else "equal"
        made.append(
            tendency.probability_estimate(
                runs["a"], runs["b"], boundary=reach, verdict=verdict, level=1 - ALPHA
            )
        )
    holds = [one.low <= true <= one.high for one in made]
    widths = [one.high - one.low for one in made]
    return {"held": float(np.mean(holds)), "width": float(np.mean(widths)), "trials": trials}


def exchanged(laws: tuple[Law, Law], n: int, trials: int) -> Cell:
    """Permuted differences of means, the former rule: all trials by one table of exchanges."""
    rng = np.random.default_rng([n, 11])
    scores = np.concatenate([law(rng, trials * n).reshape(trials, n) for law in laws], axis=1)
    places = np.argsort(rng.random((EXCHANGES, 2 * n)), axis=1)
    signs = np.where(places < n, 1.0, -1.0) / n
    seen = np.abs(scores[:, :n].mean(1) - scores[:, n:].mean(1))
    beyond = (np.abs(scores @ signs.T) >= seen[:, None] * (1.0 - 1e-9)).sum(1) + 1
    return {"decided": float((beyond / (EXCHANGES + 1) <= ALPHA).mean()), "trials": trials}
