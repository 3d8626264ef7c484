"""Curves, areas, tolerance bands, power, families."""

import numpy as np
import pytest
from scipy import stats

from sterling.statistics import (
    Scores,
    auc,
    curve,
    cvar,
    estimate,
    generalisation_gap,
    need,
    power,
    rank_changes,
    tolerance,
    worst_context,
)
from sterling.types import Mistake


def test_learning_curve_area_resamples_whole_runs():
    # a pure run effect, constant over 50 points of time: the area knows no more than one point
    effect = np.random.default_rng(0).normal(size=10)
    curves = np.repeat(effect[:, None], 50, axis=1)
    area, point = auc(curves), estimate(effect)
    assert (area.low, area.high) == pytest.approx((point.low, point.high))
    cells = np.random.default_rng(1).choice(10, size=(2000, 10, 50))
    wrong = effect[cells].mean((1, 2))  # every cell drawn on its own
    low, high = np.quantile(wrong, [0.025, 0.975])
    assert area.high - area.low > 5 * (high - low)


def test_learning_curve_area_matches_hand_values():
    # steps 0, 1, 3: trapezoids 1.5 + 5 over 3
    assert auc([[1.0, 2.0, 3.0]], [0, 1, 3]).value == pytest.approx(6.5 / 3)
    assert auc([[4.0], [6.0]]).value == 5.0
    table = Scores.from_values(np.ones((3, 2, 4)), steps=[0, 1, 2, 3])
    assert auc(table, what="iqm", interval="none").value == 1.0
    with pytest.raises(Mistake, match="no time axis"):
        auc(Scores.from_values([[1.0]]))
    with pytest.raises(Mistake, match="steps of a curve must ascend"):
        auc([[1.0, 2.0]], [1, 1])
    with pytest.raises(Mistake, match=r"2 points needs 2 steps; got shape \(3,\)"):
        auc([[1.0, 2.0]], [1, 2, 3])


def test_learning_curve_interval_band_and_tolerance():
    runs = np.array([[0.0, 1.0], [2.0, 5.0], [4.0, 3.0], [6.0, 7.0], [8.0, 9.0]])
    made = curve(runs, [10, 20], band=1.0)
    assert made.median.tolist() == [4.0, 5.0]
    assert (made.band_low.tolist(), made.band_high.tolist()) == ([0.0, 1.0], [8.0, 9.0])
    for at in range(2):
        one = estimate(runs[:, at])
        assert (made.mean[at], made.low[at], made.high[at]) == pytest.approx(
            (one.value, one.low, one.high)
        )
    assert curve(runs[:1]).low is None
    with pytest.raises(Mistake, match=r"\(run, time\)"):
        curve([1.0, 2.0])


def test_learning_curves_of_failed_runs_must_be_declared():
    runs = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]])
    with pytest.raises(Mistake, match="1 of 3 failed"):
        curve(runs)
    assert curve(runs, failed="exclude").runs.shape == (2, 2)
    counted = curve(runs, failed=0)
    assert counted.runs[1].tolist() == [3.0, 0.0]
    assert counted.method == "t; 1 of 3 failed, counted as 0"
    with pytest.raises(Mistake, match="not finite"):
        auc(runs)


def test_tolerance_band_confidence_is_what_n_runs_support():
    runs = np.arange(10.0)
    made = tolerance(runs, 0.8)
    assert (made.low, made.high) == (0.0, 9.0)
    n, p = 10, 0.8
    assert made.confidence == pytest.approx(1 - n * p ** (n - 1) + (n - 1) * p**n)
    assert round(made.confidence, 2) == 0.62
    assert str(made) == "[0, 9] holds 80% of runs with confidence 62%"
    many = tolerance(np.arange(100.0), 0.8)
    assert many.confidence >= 0.95
    assert many.high - many.low < 95


def test_tolerance_band_covers_as_stated():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(1000):
        made = tolerance(rng.random(40), 0.7)
        held.append(made.high - made.low >= 0.7)  # the share of uniform runs between them
    assert made.confidence >= 0.95
    assert abs(np.mean(held) - made.confidence) < 0.02
    with pytest.raises(Mistake, match="tolerance takes one task"):
        tolerance([[1.0, 2.0]])
    with pytest.raises(Mistake, match="coverage must lie between"):
        tolerance([1.0, 2.0], 80)


def test_seed_power_and_needed_runs_match_known_values():
    # Cohen (1988): 64 runs of each for d = 0.5, 26 for 0.8, 17 for 1
    assert [need(effect) for effect in (0.5, 0.8, 1.0)] == [64, 26, 17]
    assert power(0.5, 64) == pytest.approx(0.8015, abs=1e-4)
    assert power(0.0, 10) == pytest.approx(0.05)
    assert power(-1.0, 17) == power(1.0, 17)
    sequential = power(2.0, 15, test="compare", interims=3, draws=40)
    assert 0.7 < sequential <= 1.0
    for wrong, match in (
        (lambda: need(0.0), "detects an effect of 0"),
        (lambda: need(1e-5), "practically zero"),
        (lambda: power(1.0, 1), "at least 2 runs"),
        (lambda: power(1.0, 5, test="z"), "unknown test 'z'"),
        (lambda: power(1.0, 5, test="compare", interims=2), "do not divide"),
    ):
        with pytest.raises(Mistake, match=match):
            wrong()


def test_generalisation_gap_pairs_runs():
    rng = np.random.default_rng(0)
    skill = rng.normal(0, 10, (6, 1))
    train, test = skill + rng.normal(1, 0.1, (6, 4)), skill + rng.normal(0, 0.1, (6, 9))
    made = generalisation_gap(train, test)
    assert made.low < 1.0 < made.high
    assert made.high - made.low < 1.0  # the runs' own spread of 10 cancels
    with pytest.raises(Mistake, match="not the same"):
        generalisation_gap(train, test[:5])
    with pytest.raises(Mistake, match="pairs the runs"):
        generalisation_gap(train, test, failed="exclude")


def test_worst_context_is_the_one_of_lowest_mean_and_matches_cvar():
    rng = np.random.default_rng(0)
    scores = Scores.from_values(
        rng.normal([3.0, 1.0, 2.0], 0.1, (5, 3)), tasks=["light", "heavy", "long"]
    )
    made = worst_context(scores)
    assert (made.context, made.probability) == ("heavy", 1.0)
    assert made.estimate.value == scores.values[:, 1].mean()
    equal = worst_context(Scores.from_values(rng.normal(0, 1, (5, 2)), tasks=["a", "b"]))
    assert 0.5 < equal.probability < 1.0
    few = [[3.0, 2.0], [3.0, 2.0], [np.nan, 2.0], [np.nan, 2.0]]
    uneven = Scores.from_values(few, mask=~np.isnan(few), tasks=["two runs", "four runs"])
    assert worst_context(uneven).probability == 1.0
    tail = estimate(scores, cvar(1 / 3), shared=True, draws=300)
    assert tail.value == pytest.approx(made.estimate.value)


def test_rank_changes_between_contexts_are_found():
    rng = np.random.default_rng(0)
    point = {"a": rng.normal(2, 0.1, 5), "b": rng.normal(1, 0.1, 5)}
    family = {"a": rng.normal(1, 0.1, (5, 3)), "b": rng.normal(2, 0.1, (5, 3))}
    (turned,) = rank_changes(point, family)
    assert turned.there > 0 > turned.here
    assert turned.probability == 1.0
    (same,) = rank_changes(point, point)
    assert same.probability < 0.01
    with pytest.raises(Mistake, match="same names on both sides, two or more"):
        rank_changes(point, {"a": [1.0]})


def test_tolerance_band_of_one_run_is_empty():
    made = tolerance([4.0])
    assert (made.low, made.high, made.confidence, made.n) == (None, None, 0.0, 1)


def test_learning_curve_points_of_equal_runs_have_no_interval_without_bounds():
    runs = np.array([[5.0, 1.0], [5.0, 2.0], [5.0, 2.0]])  # at the second they differ by 1
    made, inside = curve(runs), curve(runs, within=(0.0, 10.0))
    assert np.isnan([made.low[0], made.high[0]]).all()
    low, high = stats.t.interval(0.95, 2, 5 / 3, stats.sem(runs[:, 1]))
    assert (made.low[1], made.high[1]) == pytest.approx((low, high))
    assert inside.low[0] < 5.0 < inside.high[0]
