"""Ties, one run, failed runs, constants, unequal numbers, missing tasks: one clear answer each."""

import numpy as np
import pytest

from sterling.statistics import (
    Estimate,
    Scores,
    estimate,
    headline,
    improve,
    profile,
    ranks,
    tolerance,
)
from sterling.statistics.comparisons.comparison_result import format_probability
from sterling.statistics.intervals.aggregates import find_aggregate
from sterling.statistics.intervals.estimates import _trim_to_bounds
from sterling.statistics.intervals.mean_intervals import effective_runs_and_skewness
from sterling.statistics.scores.score_table import make_sample
from sterling.types import Mistake

NAN = float("nan")
RAGGED = Scores.from_values(
    [[1.0, 10.0], [2.0, 20.0], [3.0, NAN], [4.0, NAN]],
    mask=[[True, True], [True, True], [True, False], [True, False]],
)


@pytest.mark.parametrize("what", ["mean", "median", "iqm", "gap", "cvar", "worst"])
def test_estimate_of_one_run_has_no_interval_for_any_aggregate(what):
    for scores in ([5.0], [[5.0, 6.0]]):
        made = estimate(scores, what)
        assert (made.low, made.high, made.n, made.method) == (None, None, 1, "none (one run)")
    assert improve([1.0], [2.0, 3.0]).low is None
    assert profile([1.0], [0.0]).low is None
    assert ranks({"a": [1.0], "b": [2.0, 3.0]}).mean["a"].low is None
    assert tolerance([1.0]).low is None
    assert str(tolerance([1.0])) == "one run shows no spread"


def test_iqm_of_fewer_than_four_scores_is_the_mean():
    assert estimate([1.0, 2.0, 9.0], "iqm").value == pytest.approx(4.0)  # the mean
    assert estimate([1.0, 2.0, 3.0, 9.0], "iqm").value == pytest.approx(2.5)


@pytest.mark.parametrize("what", ["mean", "median", "iqm", "gap", "cvar", "worst"])
def test_estimate_of_constant_scores_has_no_interval(what):
    made = estimate(np.full((4, 3), 0.3), what, draws=200)
    assert (made.low, made.high, made.method) == (None, None, "none (no spread seen)")


def test_success_rate_of_all_successes_still_has_an_interval():
    made = estimate([1, 1, 1, 1, 1], within=(0, 1))
    assert (made.method, made.high) == ("bounded", 1.0)
    assert made.low == pytest.approx(0.4781762499)
    assert estimate([[1, 1]] * 5, within=(0, 1)).low < 0.7
    iqm = estimate([1, 0, 1, 1], "iqm", within=(0, 1))
    assert iqm.low is None  # a mean is what successes have


def test_success_rate_over_several_episodes_uses_the_beta_interval():
    rates = [0.9, 1.0, 0.95, 0.85]
    made = estimate(rates, episodes=20)
    assert made.method == "beta"
    assert 0.7 < made.low < made.value < made.high < 1.0
    assert made.high - made.low < estimate(rates, episodes=2).high - estimate(rates, episodes=2).low
    assert estimate(rates).method == "t"  # nothing says that these are rates


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_success_rate_of_identical_runs_ignores_the_episode_count(rate):
    """Runs that always or never succeed are five observations, however many episodes they have."""
    many, once = estimate([rate] * 5, episodes=20), estimate([rate] * 5, within=(0, 1))
    assert (many.low, many.high) == pytest.approx((once.low, once.high))


def test_estimate_accepts_unequal_run_counts_per_task():
    made = estimate(RAGGED)
    assert made.value == pytest.approx((2.5 + 15.0) / 2)  # each task counts the same
    assert made.n == 2
    iqm = estimate(RAGGED, "iqm", draws=200)
    # runs of the second task weigh twice: a quarter of 8 weights is cut at either end
    assert iqm.value == pytest.approx((3.0 + 4.0 + 10.0 * 2) / 4)
    assert iqm.low <= iqm.value <= iqm.high
    assert improve(RAGGED, RAGGED).value == 0.5
    with pytest.raises(Mistake, match="equally many runs"):
        estimate(RAGGED, np.std)
    with pytest.raises(Mistake, match="every run on every task"):
        estimate(RAGGED, shared=True)


def test_score_table_names_a_missing_task():
    scores = Scores.from_values([[1.0, NAN]], tasks=["Ant", "Hopper"], mask=[[True, False]])
    with pytest.raises(Mistake, match="no run counts on task 'Hopper'; select"):
        estimate(scores)
    assert estimate(scores.select(["Ant"])).value == 1.0
    with pytest.raises(Mistake, match="first side has 1 tasks, the second 2; select the same"):
        improve([1.0, 2.0], [[1.0, 2.0]])
    with pytest.raises(Mistake, match=r"differ \(a 1, b 2\)"):
        ranks({"a": [1.0], "b": [[1.0, 2.0]]})


def test_probability_of_improvement_counts_ties_half():
    assert improve([1.0, 1.0], [1.0, 1.0]).value == 0.5
    assert improve([1.0, 2.0], [1.0, 3.0]).value == pytest.approx((0.5 + 0 + 1 + 0) / 4)
    made = ranks({"a": [[1.0, 2.0]] * 3, "b": [[1.0, 3.0]] * 3}, draws=50)
    assert made.mean["a"].value == pytest.approx((1.5 + 2) / 2)
    assert made.rank_probabilities("a").tolist() == [0.25, 0.75]
    level, low = [500.0] * 3, [1.0, 2.0, 3.0]
    made = ranks({"a": level, "b": level, "c": level, "d": low}, draws=50)
    third = pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])
    assert [made.rank_probabilities(name).tolist() for name in "abc"] == [third] * 3
    assert made.rank_probabilities("d").tolist() == [0.0, 0.0, 0.0, 1.0]


def test_probability_of_improvement_of_a_clean_sweep_is_not_certain():
    made = improve([4.0, 5.0, 6.0], [1.0, 2.0, 3.0])
    assert (made.value, made.high) == (1.0, 1.0)
    assert made.low < 0.5  # three against three never show anything at 95 %
    assert improve(np.arange(10.0, 20.0), np.arange(10.0)).low > 0.6
    assert improve([4.0, 5.0], [1.0, 2.0], interval="bootstrap").low == 1.0  # as elsewhere


def test_failed_runs_must_be_declared_in_every_statistic():
    scores = [1.0, NAN, 3.0]
    with pytest.raises(Mistake, match="say what they count as"):
        improve(scores, [1.0, 2.0])
    made = improve(scores, [1.0, 2.0], failed=-1)
    assert made.method == "Newcombe; 1 of 3 failed, counted as -1"
    assert profile(scores, [0.0], failed=-1).value.tolist() == [2 / 3]
    assert tolerance(scores, failed="exclude").n == 2


def test_estimate_accepts_a_function_of_the_score_table():
    scores = np.random.default_rng(0).normal(size=(6, 3))
    made = estimate(scores, lambda table: table.max(0).mean(), draws=200)
    assert made.value == pytest.approx(scores.max(0).mean())
    assert made.low < made.value < made.high


def test_shared_runs_are_resampled_as_whole_rows():
    # each run is good or bad everywhere: its tasks are no independent evidence
    scores = np.repeat(np.random.default_rng(0).normal(size=(5, 1)), 20, axis=1)
    apart, together = estimate(scores), estimate(scores, shared=True)
    assert together.high - together.low > 3 * (apart.high - apart.low)
    assert together.low == pytest.approx(estimate(scores[:, 0]).low)
    iqm = estimate(scores, "iqm", shared=True, draws=500)
    assert iqm.high - iqm.low > 2 * (estimate(scores, "iqm", draws=500).high - iqm.value)


def test_failed_worst_needs_a_declared_worst_score():
    for asked in (
        improve,
        lambda *scores, **how: ranks(dict(zip("ab", scores, strict=True)), **how),
    ):
        with pytest.raises(Mistake, match=r"needs the worst possible score.*use failed=<number>"):
            asked([1.0, NAN], [1.0, 2.0], failed="worst")


def test_median_of_one_task_is_the_median_of_its_runs():
    assert estimate([1.0, 2.0, 10.0], "median").value == 2.0
    assert estimate([[1.0, 5.0], [2.0, 5.0], [12.0, 5.0]], "median").value == 5.0  # of task means


def test_probability_format_shows_the_side_of_one_half():
    def shown(low, high):
        return format_probability(Estimate(0.8, low, high, 5, "exact", 0.95))

    assert shown(0.61, 0.9) == "0.80 [0.61, 0.90]"
    assert shown(0.502, 0.9) == "0.80 [>0.50, 0.90]"
    assert shown(0.1, 0.498) == "0.80 [0.10, <0.50]"


def test_headline_of_no_scores_has_no_estimate():
    for failed in (None, 0.0, "exclude"):
        assert headline([], failed=failed).made is None


def test_interval_trimming_never_passes_the_estimate():
    for value in (5.0, -5.0):
        found = _trim_to_bounds(
            value + 1e-12, value - 1e-12, value, (None, None), find_aggregate("mean")
        )
        assert found == (value, value)


def test_skewness_ignores_tasks_without_spread():
    runs, skewness = effective_runs_and_skewness(make_sample([[1.0, 1.0], [1.0, 2.0], [1.0, 9.0]]))
    assert (runs, float(skewness) > 0.1) == (3.0, True)


def test_performance_profile_refuses_a_level_outside_0_and_1():
    with pytest.raises(Mistake, match="level"):
        profile([1.0, 2.0], [0.0, 1.0], level=2.0)
