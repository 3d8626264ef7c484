"""Verdicts about tendency: statistic, floor, interval, and both kinds of error."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from sterling.statistics import compare, need, power
from sterling.statistics.comparisons.comparison_result import (
    critical_z,
    format_probability,
    includes_half,
)
from sterling.statistics.comparisons.tendency import (
    brunner_munzel,
    can_decide,
    floor_permits,
    min_runs_to_decide,
    probability_estimate,
    sign_test_floor,
)


@pytest.mark.parametrize(("n", "m", "decimals"), [(5, 5, 9), (4, 9, 9), (12, 7, 0), (20, 20, 0)])
def test_brunner_munzel_statistic_equals_scipy(n, m, decimals):
    rng = np.random.default_rng([n, m])
    for _ in range(20):  # without decimals there are many ties
        first, second = rng.normal(0, 3, n).round(decimals), rng.normal(1, 2, m).round(decimals)
        if first.min() > second.max() or second.min() > first.max():
            continue  # scipy divides by zero
        made = brunner_munzel(first, second)
        theirs = stats.brunnermunzel(second, first, distribution="t")
        assert made[0] == pytest.approx(theirs.statistic)
        chance_of_t = 2 * stats.t.sf(abs(made[0]), made[1])
        assert chance_of_t == pytest.approx(theirs.pvalue)


def test_brunner_munzel_of_separated_samples_is_the_most_extreme():
    """Its placements do not vary: without a least variance it could not be put in order."""
    found = []
    for chosen in itertools.combinations(range(10), 5):
        rest = [i for i in range(10) if i not in chosen]
        found.append(brunner_munzel(np.array(chosen, float), np.array(rest, float))[0])
    most = sorted(np.abs(found))
    assert most[-1] == most[-2] == pytest.approx(25 / math.sqrt(2))
    assert most[-3] < most[-2]
    one_tie = brunner_munzel(np.array([5.0, 6, 7, 8, 9]), np.array([1.0, 2, 3, 4, 5]))
    assert most[-3] < one_tie[0] < most[-1]
    assert brunner_munzel(np.ones(5), np.ones(5))[0] == 0.0


def test_sign_test_floor_of_steady_runs():
    steady = np.array([10.0, 10.1, 10.2, 10.3, 10.4])
    assert sign_test_floor(steady, steady + 5) == 2 / 2**5
    assert sign_test_floor(steady, np.array([1.0, 20, 21, 22, 23])) == pytest.approx(
        stats.binomtest(1, 5).pvalue
    )
    assert sign_test_floor(np.array([1.0, 20, 21, 22, 23]), steady) == 2 * (1 + 5) / 2**5
    assert sign_test_floor(steady, np.array([1.0, 10.15, 21, 22, 23])) == 0.0  # it lies among them
    capped = np.full(5, 500.0)
    assert (
        sign_test_floor(capped, np.array([500.0, 500, 500, 7, 8])) == 2 / 2**2
    )  # ties count for no side
    assert sign_test_floor(capped, capped) == 1.0


def test_min_runs_to_decide_match_hand_values():
    assert [min_runs_to_decide(0.05, others) for others in (1, 2, 3, 7)] == [5, 6, 7, 8]
    assert (min_runs_to_decide(0.01), min_runs_to_decide(0.5)) == (8, 5)
    assert can_decide(5, 0.05)
    assert not can_decide(5, 0.049)
    assert not floor_permits(float(stats.binomtest(1, 8).pvalue), 0.05)  # 0.070


def samples():
    """Pairs of all kinds: apart, alike, tied, steady beside spread, of unequal numbers."""
    rng = np.random.default_rng(0)
    for trial in range(60):
        n, m = rng.integers(5, 12, 2)
        first = rng.normal(trial % 3, (0.1, 1.0)[trial % 2], n)
        yield first, rng.normal(0.0, 1.0, m).round(trial % 4)


def test_tendency_interval_excludes_one_half_exactly_if_decided():
    met = set()
    for first, second in samples():
        (made,) = compare({"a": first, "b": second}, interims=1, per_interim=None).decisions
        decided = made.verdict in ("larger", "smaller")
        assert decided != includes_half(made.better)
        assert made.better.low <= made.better.value <= made.better.high
        if decided:
            assert (made.better.value > 0.5) == (made.verdict == "larger")
        shown = format_probability(made.better).split("[")[1].rstrip("]").split(", ")
        low, high = (text.lstrip("<>") for text in shown)
        marked = shown[0].startswith(">") or shown[1].startswith("<")
        assert decided == (float(low) > 0.5 or float(high) < 0.5 or marked)
        met.add(made.verdict)
    assert met == {"larger", "smaller", "equal"}


def test_tendency_comparison_is_two_sided_and_antisymmetric():
    for first, second in itertools.islice(samples(), 20):
        made, back, turned = (
            compare({"a": x, "b": y}, interims=1, per_interim=None).decisions[0]
            for x, y in ((first, second), (second, first), (-first, -second))
        )
        flip = {"larger": "smaller", "smaller": "larger", "equal": "equal"}
        assert back.verdict == turned.verdict == flip[made.verdict]
        assert back.better.value == pytest.approx(1 - made.better.value)
        assert (back.better.low, back.better.high) == pytest.approx(
            (1 - made.better.high, 1 - made.better.low), abs=0.02
        )  # exchanges are drawn, for either order apart


@pytest.mark.parametrize("name", ["normal", "collapsing"])
def test_tendency_interval_covers(name):
    rng, held = np.random.default_rng(1), 0
    true = 0.8 if name == "collapsing" else float(stats.norm.cdf(2**-0.5))
    for _ in range(300):
        first, second = rng.normal(1.0, 1.0, 10), rng.normal(0.0, 1.0, 10)
        if name == "collapsing":
            first = np.where(rng.random(10) < true, 9.0, -9.0)
        made = probability_estimate(first, second, boundary=1.96, verdict="", level=0.95)
        held += made.low <= true <= made.high
    assert 0.92 <= held / 300 <= 0.995


def steady(rng, n):
    return rng.normal(800.0, 20.0, n)


def spread(rng, n):
    return rng.normal(800.0, 200.0, n)


def two_modes(rng, n):
    return np.where(rng.random(n) < 0.5, 600.0, 1000.0) + rng.normal(0.0, 30.0, n)


def rates(rng, n):
    return rng.binomial(4, 0.5, n) / 4.0


def decided(laws, n, trials, interims=1, draws=500):
    """The share of comparisons with any verdict."""
    seen = 0
    for trial in range(trials):
        rng = np.random.default_rng([trial, n, 17])
        runs = {name: law(rng, n * interims) for name, law in zip("abc", laws, strict=False)}
        made = compare(runs, interims=interims, per_interim=n, key=trial, draws=draws)
        seen += any(one.verdict in ("larger", "smaller") for one in made.decisions)
    return seen / trials


@pytest.mark.parametrize(
    ("laws", "n", "interims", "most"),
    [
        ((steady, spread), 7, 1, 0.06),  # 0.09 without Satterthwaite's degrees of freedom
        ((steady, spread), 20, 1, 0.085),
        ((steady, two_modes), 7, 1, 0.04),  # 0.125 without them
        ((steady, two_modes), 8, 1, 0.03),  # 0.07 without the floor
        ((steady, two_modes, two_modes), 6, 1, 0.09),  # 0.06; its floor for two would be 0.12 at 5
        ((rates, rates), 10, 1, 0.085),  # 0.4 if ties counted for one side
        ((steady, two_modes), 5, 4, 0.085),  # 0.0625 in the first look alone without the floor
        ((spread, spread), 5, 4, 0.085),  # 0.12 if every look spent the whole level
    ],
)
def test_tendency_comparison_rarely_separates_equal_algorithms(laws, n, interims, most):
    assert decided(laws, n, 250, interims, draws=300 if interims > 1 else 500) <= most


@pytest.mark.parametrize(
    ("by", "n", "interims", "least"),
    [(2.0, 5, 1, 0.62), (1.5, 10, 1, 0.78), (1.0, 20, 1, 0.77), (1.0, 5, 4, 0.66)],
)
def test_tendency_comparison_separates_different_algorithms(by, n, interims, least):
    """Seen: 0.71, 0.86, 0.85; a rule that never decides would pass the test above."""
    laws = (lambda rng, n: rng.normal(by, 1.0, n), lambda rng, n: rng.normal(0.0, 1.0, n))
    assert decided(laws, n, 150, interims, draws=600) >= least


def test_tendency_comparison_prefers_a_mostly_better_collapsing_learner():
    """Its mean is the same: 800."""

    def collapsing(rng, n):
        return np.where(rng.random(n) < 0.8, 1000.0, 0.0) + rng.normal(0.0, 10.0, n)

    assert decided((collapsing, steady), 20, 60) > 0.7
    rng = np.random.default_rng(3)
    scores = {"a": np.array([1000.0] * 7 + [100.0] * 3), "b": steady(rng, 10)}
    made = compare(scores, interims=1, per_interim=None)
    assert made.decisions[0].directions_disagree
    assert "different directions: a run of a scores higher than one of b in 0.70" in str(made)
    assert "of pairs, but the mean of b is higher, by" in str(made)


def test_tendency_power_and_needed_runs_agree():
    assert need(1.0, test="compare") == 20  # Noether: 7.85 / 6 / 0.2602^2
    assert need(5.0, test="compare") == 6
    assert power(1.0, 20, test="compare", draws=150) == pytest.approx(0.85, abs=0.1)


def newcombe(value, n, m, quantile, wider=1.0):
    """The roots of (p - theta)^2 = quantile^2 V(theta) widened, found by SciPy."""

    def away(theta):
        share = (1 - theta) / (2 - theta) + theta / (1 + theta)
        variance = theta * (1 - theta) * (1 + ((n + m) / 2 - 1) * share) / (n * m)
        return (value - theta) ** 2 - quantile**2 * wider * variance

    return optimize.brentq(away, 1e-12, value), optimize.brentq(away, value, 1.0 - 1e-12)


@pytest.mark.parametrize(
    ("second", "more"),
    [([0.9, 1.6, 2.2, 4.1, 7.7, 8.3], True), ([4.95, 5.55, 6.55, 7.25, 7.45, 7.65], False)],
)
def test_tendency_interval_is_newcombes_widened(second, more):
    first, second = np.array([0.3, 1.1, 2.6, 3.4, 4.9, 5.2, 6.8]), np.array(second)
    made = probability_estimate(first, second, boundary=1.6, verdict="", level=0.95)
    value = (first[:, None] > second).mean()
    theirs = stats.brunnermunzel(second, first)
    share = (1 - value) / (2 - value) + value / (1 + value)
    expected = value * (1 - value) * (1 + (13 / 2 - 1) * share) / 42
    wider = ((value - 0.5) / theirs.statistic) ** 2 / expected
    assert (wider > 1.0) == more
    low, high = newcombe(value, 7, 6, stats.t.ppf(stats.norm.cdf(1.6), 11), max(wider, 1.0))
    assert (made.value, made.low, made.high) == pytest.approx(
        (value, min(low, 0.5), max(high, 0.5)), abs=1e-9
    )


def test_tendency_interval_needs_two_runs():
    first, second = np.array([1.0, 3.0]), np.array([2.0, 5.0])
    made = probability_estimate(first, second, boundary=1.96, verdict="", level=0.95)
    # placements 0, 1/2 and 1/2, 1: each has variance 1/8, of two runs 1/16
    expected = 0.25 * 0.75 * (1 + 0.75 / 1.75 + 0.25 / 1.25) / 4
    wider = (1 / 16 + 1 / 16) / expected
    wanted = newcombe(0.25, 2, 2, stats.t.ppf(stats.norm.cdf(1.96), 2), wider)
    assert (made.low, made.high) == pytest.approx(wanted, abs=1e-9)
    alone = probability_estimate(first[:1], second, boundary=1.96, verdict="", level=0.95)
    assert (alone.low, alone.high, alone.method) == (None, None, "none (one run)")


def test_critical_z_of_a_level_is_the_normal_quantile():
    assert critical_z(0.05) == pytest.approx(stats.norm.isf(0.025))
    assert critical_z(1.0) == critical_z(1.5) == math.inf


def test_untested_pair_is_shown_at_the_level_of_its_look():
    """Three runs decide nothing, so there is no boundary: |z| of half(0.05 / 5) is taken."""
    first, second = np.array([1.0, 2.0, 7.0]), np.array([3.0, 4.0, 5.0])
    (made,) = compare({"a": first, "b": second}, per_interim=3).decisions
    assert made.verdict == "undecided"
    shown = probability_estimate(
        first, second, boundary=stats.norm.isf(0.005), verdict="", level=0.95
    )
    assert (made.better.low, made.better.high) == pytest.approx((shown.low, shown.high))
