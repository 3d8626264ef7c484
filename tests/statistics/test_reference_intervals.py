"""Intervals against numbers from outside: SciPy's distributions and roots, and plain resampling."""

import numpy as np
import pytest
from scipy import optimize, stats

from sterling.statistics import cvar, estimate, improve, need, power, profile, ranks, tolerance
from sterling.statistics.intervals.mean_intervals import skew_t_arms
from sterling.statistics.intervals.success_rate import (
    beta_binomial_interval,
    join_task_intervals,
    wilson_interval_at_z,
)
from sterling.types import Mistake

FIRST = np.array([[3.1, 0.4], [2.2, 0.9], [4.0, 0.1], [1.4, 0.8], [2.9, 0.7]])
SECOND = np.array([[2.0, 0.6], [2.5, 0.5], [0.9, 1.1], [1.8, 0.2]])


def placements(x, y):
    """1 for every pair won, 1/2 for every tie."""
    return np.array([[float(a > b) + 0.5 * float(a == b) for b in y] for a in x])


def newcombe(x, y, level):
    """The roots of |theta_hat - theta| = t sqrt(V(theta)), found by SciPy."""
    m, n = len(x), len(y)
    estimate_, half = placements(x, y).mean(), (m + n) / 2.0
    t = stats.t.ppf(0.5 + level / 2.0, m + n - 2)

    def away(theta):
        share = (1 - theta) / (2 - theta) + theta / (1 + theta)
        variance = theta * (1 - theta) * (1 + (half - 1) * share) / (m * n)
        return (estimate_ - theta) ** 2 - t**2 * variance

    tiny = 1e-12
    low = 0.0 if estimate_ == 0.0 else optimize.brentq(away, tiny, estimate_)
    return low, 1.0 if estimate_ == 1.0 else optimize.brentq(away, estimate_, 1.0 - tiny)


@pytest.mark.parametrize("task", [0, 1])
def test_probability_of_improvement_on_one_task_is_newcombes_interval(task):
    x, y = FIRST[:, task], SECOND[:, task]
    made = improve(x, y, level=0.9)
    assert (made.low, made.high) == pytest.approx(newcombe(x, y, 0.9), abs=1e-8)


def test_probability_of_improvement_on_two_tasks_takes_the_wider_end():
    made = improve(FIRST, SECOND, level=0.8)
    ends = np.array([newcombe(FIRST[:, k], SECOND[:, k], 0.8) for k in range(2)])
    won = [placements(FIRST[:, k], SECOND[:, k]) for k in range(2)]
    middle = np.array([each.mean() for each in won])
    joint = np.sqrt(((ends - middle[:, None]) ** 2).sum(0)) / 2.0
    variance = np.array(
        [np.var(w.mean(1), ddof=1) / 5 + np.var(w.mean(0), ddof=1) / 4 for w in won]
    )
    freedom = variance.sum() ** 2 / (variance**2 / 7.0).sum()
    half = stats.t.ppf(0.9, freedom) * np.sqrt(variance.sum()) / 2.0
    assert made.low == pytest.approx(middle.mean() - max(joint[0], half), abs=1e-8)
    assert made.high == pytest.approx(middle.mean() + max(joint[1], half), abs=1e-8)


def test_joined_task_success_rate_interval_matches_hand_values():
    nothing, known = np.zeros(2), {"freedoms": np.array([4.0, 9.0]), "level": 0.95}
    low, high = join_task_intervals(
        np.array([0.5, 0.7]), np.array([0.2, 0.3]), np.array([0.8, 0.9]), variances=nothing, **known
    )  # arms of sqrt(.3^2 + .4^2) / 2 = .25 and sqrt(.3^2 + .2^2) / 2
    assert (low, high) == pytest.approx((0.35, 0.6 + np.sqrt(0.13) / 2.0))
    wide = np.array([0.04, 0.01])
    ends = np.array([0.5, 0.7])
    low, high = join_task_intervals(ends, ends, ends, variances=wide, **known)
    freedom = 0.05**2 / (0.04**2 / 4.0 + 0.01**2 / 9.0)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(0.05) / 2.0
    assert (low, high) == pytest.approx((0.6 - half, 0.6 + half))
    low, high = join_task_intervals(ends, ends, ends, variances=100.0 * wide, **known)
    assert (low, high) == (0.0, 1.0)


def test_wilsons_interval_solves_its_equation():
    for rate, n, z in ((0.3, 7.0, 1.96), (0.92, 11.5, 2.4), (0.5, 3.0, 1.0)):

        def away(p, rate=rate, n=n, z=z):
            return (rate - p) ** 2 - z * z * p * (1.0 - p) / n

        wanted = optimize.brentq(away, 1e-12, rate), optimize.brentq(away, rate, 1.0 - 1e-12)
        assert wilson_interval_at_z(rate, n, z) == pytest.approx(wanted, abs=1e-9)
    assert wilson_interval_at_z(0.0, 9.0, 2.0)[0] == 0.0
    assert wilson_interval_at_z(1.0, 9.0, 2.0)[1] == 1.0


def test_beta_binomial_interval_uses_the_effective_episode_count():
    rates = np.array([0.6, 0.9, 0.75, 0.95])
    middle = 0.8
    design = rates.var(ddof=1) * 20 / (middle * (1.0 - middle))
    assert 1.0 < design < 20.0
    t = stats.t.ppf(0.975, 3)

    def away(p):
        return (middle - p) ** 2 - t * t * p * (1.0 - p) / (4 * 20 / design)

    wanted = optimize.brentq(away, 1e-12, middle), optimize.brentq(away, middle, 1.0 - 1e-12)
    assert beta_binomial_interval(rates, 20, 0.95) == pytest.approx(wanted, abs=1e-9)
    with pytest.raises(Mistake, match="at least one episode"):
        beta_binomial_interval(rates, 0, 0.95)


def test_performance_profile_of_one_task_has_the_clopper_pearson_band():
    runs = FIRST[:, 0]
    made = profile(runs, [1.0, 2.5, 3.0, 9.0], level=0.9)
    for index, count in enumerate((5, 3, 2, 0)):
        low, high = stats.binomtest(count, 5).proportion_ci(0.9, "exact")
        assert (made.low[index], made.high[index]) == pytest.approx((low, high), abs=1e-9)


def resampled(table, rng, draws):
    """(draw, run, task): runs of each task drawn on their own."""
    runs, tasks = table.shape
    places = rng.integers(0, runs, (draws, runs, tasks))
    return table[places, np.arange(tasks)]


def test_bootstrap_intervals_equal_plain_resampling():
    rng = np.random.default_rng(0)
    x, y = resampled(FIRST, rng, 4_000), resampled(SECOND, rng, 4_000)
    above = (x > 0.75).mean((1, 2))
    found = profile(FIRST, [0.75], interval="bootstrap", draws=4_000)
    wanted = np.quantile(above, [0.025, 0.975])
    assert (found.low[0], found.high[0]) == pytest.approx(tuple(wanted), abs=1e-9)
    wins = (x[:, :, None] > y[:, None]).mean((1, 2, 3))
    made = improve(FIRST, SECOND, interval="bootstrap", draws=4_000)
    assert (made.low, made.high) == pytest.approx(
        tuple(np.quantile(wins, [0.025, 0.975])), abs=0.02
    )


def test_rank_intervals_equal_plain_resampling():
    tables = {"a": FIRST[:4], "b": SECOND, "c": SECOND[::-1] + np.array([0.4, -0.3])}
    rng = np.random.default_rng(1)
    drawn = np.stack([resampled(each, rng, 4_000).mean(1) for each in tables.values()])
    order = stats.rankdata(-drawn, axis=0)
    made = ranks(tables, draws=4_000)
    here = stats.rankdata(-np.stack([each.mean(0) for each in tables.values()]), axis=0).mean(1)
    for index, name in enumerate(tables):
        assert made.mean[name].value == pytest.approx(here[index])
        wanted = np.quantile(order[index].mean(1), [0.025, 0.975])
        assert (made.mean[name].low, made.mean[name].high) == pytest.approx(tuple(wanted), abs=0.26)
        first = (order[index] == 1.0).mean()
        assert made.rank_probabilities(name)[0] == pytest.approx(first, abs=0.03)


@pytest.mark.parametrize(("coverage", "confidence"), [(0.5, 0.9), (0.8, 0.95)])
def test_tolerance_band_takes_the_innermost_confident_pair(coverage, confidence):
    for n in (2, 3, 8, 21, 22, 60):
        sure = {
            r: stats.beta.sf(coverage, n + 1 - 2 * r, 2 * r) for r in range(1, (n - 1) // 2 + 1)
        }
        enough = [r for r, share in sure.items() if share >= confidence]
        made = tolerance(np.arange(float(n)), coverage, confidence=confidence)
        r = max(enough, default=1)
        assert (made.low, made.high) == (r - 1.0, n - r)
        assert made.confidence == pytest.approx(stats.beta.sf(coverage, n + 1 - 2 * r, 2 * r))


def test_bootstrap_standard_error_interval_equals_students():
    """With the factor sqrt(n / (n - 1)) it has the deviation that t has."""
    runs = np.random.default_rng(2).normal(size=8)
    made = estimate(runs, interval="bootstrap-se", draws=40_000)
    low, high = stats.t.interval(0.95, 7, runs.mean(), stats.sem(runs))
    assert (made.low, made.high) == pytest.approx((low, high), rel=0.02)
    table = np.random.default_rng(3).normal(size=(4, 3)) * [1.0, 2.0, 5.0]
    made = estimate(table, interval="bootstrap-se", draws=40_000)
    parts = table.var(0, ddof=1) / 4
    freedom = parts.sum() ** 2 / (parts**2 / 3.0).sum()
    half = stats.t.ppf(0.975, freedom) * np.sqrt(parts.sum()) / 3.0
    assert made.high - made.low == pytest.approx(2.0 * half, rel=0.02)


def test_the_studentised_bootstrap_is_that_of_plain_resampling():
    runs = np.random.default_rng(5).exponential(size=9)
    rng = np.random.default_rng(0)
    drawn = runs[rng.integers(0, 9, (40_000, 9))]
    ratio = (drawn.mean(1) - runs.mean()) / stats.sem(drawn, axis=1)
    low, high = np.quantile(ratio[np.isfinite(ratio)], [0.025, 0.975])
    error = stats.sem(runs)
    made = estimate(runs, interval="percentile-t", draws=40_000)
    assert made.low == pytest.approx(runs.mean() - high * error, rel=0.05)
    assert made.high == pytest.approx(runs.mean() - low * error, rel=0.05)


def test_cvar_of_runs_counts_the_last_one_in_part():
    assert estimate([5.0, 1.0, 3.0, 2.0, 4.0], cvar(0.5), interval="none").value == pytest.approx(
        (1.0 + 2.0 + 0.5 * 3.0) / 2.5
    )


def test_seed_power_refuses_invalid_probabilities():
    for wrong in (lambda: power(1.0, 5, alpha=1.0), lambda: power(1.0, 5, alpha=0.0)):
        with pytest.raises(Mistake, match="alpha must lie between"):
            wrong()
    for share in (0.04, 0.05, 1.0):
        with pytest.raises(Mistake, match="power must lie between"):
            need(0.5, share)


def test_performance_profile_of_two_tasks_takes_the_wider_end():
    """The middle distances of Clopper and Pearson's ends, or Student's from p (1 - p) / (n - 1)."""
    made = profile(FIRST, [0.75], level=0.9)
    rates = np.array([1.0, 0.4])  # 5 of 5 and 2 of 5 lie above
    ends = np.array([stats.binomtest(k, 5).proportion_ci(0.9, "exact") for k in (5, 2)])
    joint = np.sqrt(((ends - rates[:, None]) ** 2).sum(0)) / 2.0
    variance = rates * (1.0 - rates) / 4.0
    half = stats.t.ppf(0.95, 4) * np.sqrt(variance.sum()) / 2.0
    assert made.low[0] == pytest.approx(0.7 - max(joint[0], half), abs=1e-9)
    assert made.high[0] == pytest.approx(min(0.7 + max(joint[1], half), 1.0), abs=1e-9)
    assert half > joint[1]  # each of the two is the wider one on some side


def test_cvar_over_all_tasks_is_the_mean_with_wider_interval():
    """Task means are put in order, so the arms are those of skewed means (docs/statistics.md)."""
    table = np.random.default_rng(7).exponential(size=(5, 4))
    made = estimate(table, cvar(1.0), draws=20_000)
    skewed, students = estimate(table, interval="skew-t"), estimate(table, interval="t")
    assert made.value == pytest.approx(table.mean())
    assert (made.low, made.high) == pytest.approx((skewed.low, skewed.high), rel=0.02)
    assert made.high - made.low > 1.2 * (students.high - students.low)
    alone = estimate(table[:, 0], cvar(0.5))
    assert (alone.low, alone.method) == (None, "none (the extreme of few runs; see tolerance)")


@pytest.mark.parametrize(("n", "skewness"), [(9.0, 0.0), (9.0, 0.5), (12.0, -0.25)])
def test_skew_t_factors_interpolate_in_log_runs(n, skewness):
    """Of 8, 10 and 12 runs the table has 1.55 + 1.77 g, 1.42 + 1.73 g and 1.25 + 1.96 g."""
    share = np.log(n / 8.0) / np.log(10.0 / 8.0)
    base, slope = (1.55 - 0.13 * share, 1.77 - 0.04 * share) if n < 10.0 else (1.25, 1.96)
    wanted = (max(base - slope * skewness, 1.0), max(base + slope * skewness, 1.0))
    assert skew_t_arms(n, np.asarray(skewness)) == pytest.approx(wanted)
