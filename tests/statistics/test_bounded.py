"""The interval of a mean of bounded scores: known values, the paper's definition, coverage."""

import numpy as np
import pytest
from scipy.stats import binomtest

from sterling.statistics.intervals import bounded_mean as bounded
from sterling.statistics.intervals.bounded_mean import bounded_mean, probability_below
from sterling.types import Mistake


def test_bounded_mean_interval_of_five_scores_at_the_cap():
    low, high = bounded_mean(np.full(5, 500.0), 0.0, 500.0, 0.95)
    assert low == pytest.approx(500 * 0.025 ** (1 / 5))  # 239: Clopper and Pearson's, times 500
    assert high == 500.0


def test_bounded_mean_interval_equals_the_papers_definition_by_monte_carlo():
    values = np.array([0.1, 0.35, 0.4, 0.8])
    order = np.sort(np.random.default_rng(0).uniform(size=(200_000, 4)), axis=1)
    gaps = np.diff(np.append(values, 1.0))
    drawn = np.quantile(1.0 - order @ gaps, 0.975)  # equation (2) of arXiv:1905.06208
    low, high = bounded_mean(values, 0.0, 1.0, 0.95)
    assert high == pytest.approx(drawn, abs=2e-3)
    mirrored, _ = bounded_mean(1.0 - values, 0.0, 1.0, 0.95)
    assert mirrored == pytest.approx(1.0 - high, abs=1e-7)
    assert low < values.mean() < high


def test_bounded_mean_probability_below_matches_hand_values():
    """g_1 a + g_2 b of two knots is uniform between them; of three, piecewise quadratic."""
    assert probability_below(np.array([[0.0], [2.0]]), np.array([0.5])) == pytest.approx(0.25)
    three = np.array([[0.0], [1.0], [3.0]])
    assert probability_below(three, np.array([1.0])) == pytest.approx(1 / 3)
    assert probability_below(three, np.array([2.0])) == pytest.approx(1 - 1 / 6)


def test_bounded_mean_with_one_bound_has_one_finite_end():
    values = np.array([3.0, 4.0, 9.0])
    low, high = bounded_mean(values, 0.0, None, 0.95)
    assert 0.0 < low < 3.0
    assert high == np.inf
    low, high = bounded_mean(values, None, 10.0, 0.95)
    assert low == -np.inf
    assert 5.0 < high < 10.0
    assert bounded_mean(values, -np.inf, np.inf, 0.95) == (-np.inf, np.inf)


def test_bounded_mean_treats_columns_separately():
    values = np.random.default_rng(1).uniform(size=(6, 2, 3))
    lows, highs = bounded_mean(values, 0.0, 1.0, 0.9)
    assert lows.shape == highs.shape == (2, 3)
    low, high = bounded_mean(values[:, 1, 2], 0.0, 1.0, 0.9)
    assert (lows[1, 2], highs[1, 2]) == (low, high)


def test_bounded_mean_refuses_a_score_outside_the_bounds():
    with pytest.raises(Mistake, match="501 lies above the declared bound 500"):
        bounded_mean(np.array([501.0, 3.0]), 0.0, 500.0, 0.95)
    with pytest.raises(Mistake, match="-1 lies below the declared bound 0"):
        bounded_mean(np.array([-1.0, 3.0]), 0.0, None, 0.95)


@pytest.mark.parametrize("n", [2, 5, 20])
@pytest.mark.parametrize("fails", [0.02, 0.1, 0.5])
def test_bounded_mean_interval_covers_capped_scores_with_failures(n, fails):
    rng = np.random.default_rng(n)
    collapsed = rng.uniform(size=(n, 2000)) < fails
    values = np.where(collapsed, rng.uniform(50, 450, (n, 2000)), 500.0)
    low, high = bounded_mean(values, 0.0, 500.0, 0.95)
    mean = 500.0 - 250.0 * fails
    assert ((low <= mean) & (mean <= high)).mean() >= 0.945
    assert (low <= mean).mean() >= 0.97


def test_bounded_mean_drawn_quantile_agrees_with_the_exact_one(monkeypatch):
    values = np.random.default_rng(3).beta(2.0, 1.0, 60)
    exact = bounded_mean(values, 0.0, 1.0, 0.95)
    monkeypatch.setattr(bounded, "MAX_EXACT_SCORES", 10)
    drawn = bounded_mean(values, 0.0, 1.0, 0.95)
    assert drawn[0] == pytest.approx(exact[0], abs=0.01)
    assert drawn[0] <= exact[0] + 1e-3
    assert drawn[1] == pytest.approx(exact[1], abs=0.01)
    assert drawn == bounded_mean(values, 0.0, 1.0, 0.95)  # the same again


@pytest.mark.parametrize(("successes", "n"), [(0, 4), (3, 7), (7, 7), (180, 400)])
def test_bounded_mean_of_successes_is_the_clopper_pearson_interval(successes, n):
    scores = np.repeat([1.0, 0.0], [successes, n - successes])
    low, high = bounded_mean(scores, 0.0, 1.0, 0.95)
    found = binomtest(successes, n).proportion_ci(0.95, method="exact")
    assert (low, high) == pytest.approx((found.low, found.high), abs=1e-9)


def test_bounded_mean_drawn_quantile_lies_two_standard_errors_low(monkeypatch):
    """Plain NumPy: of 20,000 means the 0.025 * 20,000 - 2 sqrt(0.025 * 20,000) = 455th."""
    values = np.random.default_rng(3).beta(2.0, 1.0, 60)
    monkeypatch.setattr(bounded, "MAX_EXACT_SCORES", 10)
    low, _ = bounded_mean(values, 0.0, 1.0, 0.95)
    rng, knots = np.random.default_rng(0), np.sort(np.append(values, 0.0))
    weights = np.concatenate([rng.standard_exponential((500, 61)) for _ in range(40)])
    means = np.sort(weights @ knots / weights.sum(1))
    assert low == pytest.approx(means[455], abs=1e-12)
