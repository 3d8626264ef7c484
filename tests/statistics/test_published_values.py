"""Published and hand-checked numbers, to all digits given."""

import numpy as np
import pytest
from scipy import stats

from sterling.statistics import cvar, estimate, gap, improve, profile
from sterling.statistics.intervals.success_rate import (
    beta_binomial_interval,
    clopper_pearson,
    wilson_interval,
)

# a (5 runs, 3 tasks) and a (4, 3) table; the numbers below are rliable 1.2.0's
X = np.array([[0.1, 1.2, 0.5], [0.4, 0.9, 2.0], [0.2, 1.5, 0.7], [0.3, 1.1, 0.6], [0.9, 0.2, 0.8]])
Y = np.array([[0.2, 1.0, 0.4], [0.1, 0.7, 0.9], [0.5, 1.6, 0.1], [0.3, 1.1, 0.2]])
TIGHT = {"rel": 0, "abs": 1e-14}


@pytest.mark.parametrize(
    ("what", "value"),
    [("mean", 0.76), ("median", 0.92), ("iqm", 0.688888888888889), ("gap", 0.36), (gap(2), 1.24)],
)
def test_aggregates_match_published_values(what, value):
    assert estimate(X, what, interval="none").value == pytest.approx(value, **TIGHT)


def test_probability_of_improvement_matches_published_values():
    assert improve(X, Y).value == pytest.approx(0.616666666666667, abs=1e-14)
    assert improve(Y, X).value == pytest.approx(0.383333333333333, abs=1e-14)
    # rliable's own test: by hand task 1 {1,2,1,2} over {1,2,3} is 4/12, task 2 {2,2,1,1} 4/12
    first, second = [[1, 2], [2, 2], [1, 1], [2, 1]], [[1, 1], [2, 2], [3, 3]]
    assert improve(first, second).value == pytest.approx(1 / 3, abs=1e-15)


def test_performance_profile_matches_published_values():
    found = profile(X, [0.0, 0.25, 0.5, 1.0, 2.0]).value
    np.testing.assert_allclose(found, [1, 0.8, 0.6, 0.266666666666667, 0], atol=1e-15)


def test_t_interval_matches_published_values():
    made = estimate(X[:, 0], interval="t")
    assert made.low == pytest.approx(-0.0067140546, abs=1e-10)
    assert made.high == pytest.approx(0.7667140546, abs=1e-10)


def test_success_rate_intervals_match_published_values():
    assert wilson_interval(0.9, 10.0, 0.95) == pytest.approx(
        (0.5958499732, 0.9821237869), abs=1e-10
    )
    assert clopper_pearson(5.0, 5, 0.95) == pytest.approx((0.4781762499, 1.0), abs=1e-10)
    for successes in range(8):
        theirs = stats.binomtest(successes, 7).proportion_ci(0.9, "exact")
        assert clopper_pearson(float(successes), 7, 0.9) == pytest.approx(tuple(theirs), abs=1e-12)


def test_beta_binomial_interval_narrows_for_runs_that_agree():
    agreeing = beta_binomial_interval(np.array([0.5, 0.5, 0.5, 0.5]), 100, 0.95)
    split = beta_binomial_interval(np.array([0.0, 1.0, 0.0, 1.0]), 100, 0.95)
    assert np.diff(agreeing) < 0.2
    assert np.diff(split) > 0.7


@pytest.mark.parametrize("shape", [(3, 1), (5, 3), (10, 26), (4, 1), (7, 9)])
def test_iqm_is_scipys_trimmed_mean(shape):
    scores = np.random.default_rng(0).normal(size=shape)
    expected = stats.trim_mean(scores, 0.25, axis=None)
    assert estimate(scores, "iqm", interval="none").value == pytest.approx(expected, abs=1e-14)


def test_cvar_counts_the_last_task_in_part():
    scores = np.array([[1.0, 2.0, 4.0, 8.0, 16.0]] * 2)
    assert estimate(scores, cvar(0.4), interval="none").value == pytest.approx(1.5)
    assert estimate(scores, cvar(0.5), interval="none").value == pytest.approx((1 + 2 + 2) / 2.5)
    assert estimate(scores, cvar(1.0), interval="none").value == pytest.approx(6.2)
    assert estimate(scores, "worst", interval="none").value == 1.0


def test_aggregates_of_one_task_are_over_its_runs():
    runs = [4.0, 1.0, 3.0, 2.0]
    values = {what: estimate(runs, what).value for what in ("median", "worst", "cvar", "iqm")}
    assert values == {"median": 2.5, "worst": 1.0, "cvar": 1.0, "iqm": 2.5}


def test_bca_bootstrap_equals_scipy():
    scores = np.random.default_rng(4).lognormal(size=12)
    ours = estimate(scores, interval="bca", draws=40_000)
    theirs = stats.bootstrap(
        (scores,), np.mean, n_resamples=40_000, method="BCa", rng=np.random.default_rng(0)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), rel=0.03)
    percentile = estimate(scores, interval="bootstrap", draws=40_000)
    theirs = stats.bootstrap(
        (scores,), np.mean, n_resamples=40_000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert (percentile.low, percentile.high) == pytest.approx(tuple(theirs), rel=0.02)


def test_percentile_t_bootstrap_of_equal_scores_has_no_interval():
    """The squares of two neighbouring numbers differ by nothing: there is no ratio to be had."""
    scores = [123.456, float(np.nextafter(123.456, 200.0))]
    made = estimate(scores, interval="percentile-t", draws=100)
    assert (made.low, made.high, made.method) == (None, None, "none (no spread seen)")
