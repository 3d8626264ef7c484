"""Runs and power: against simulations, tables and formulas worked out by hand."""

import numpy as np
import pytest
from scipy import stats

from sterling.statistics import need, power
from sterling.statistics.comparisons.seed_power import runs_to_show_tendency
from sterling.types import Mistake


@pytest.mark.parametrize(
    ("effect", "n", "alpha"), [(0.5, 20, 0.05), (1.0, 10, 0.05), (1.5, 5, 0.05), (1.0, 10, 0.01)]
)
def test_t_test_power_equals_the_simulated_rejection_rate(effect, n, alpha):
    rng = np.random.default_rng(0)
    first, second = rng.normal(effect, 1.0, (n, 20_000)), rng.normal(0.0, 1.0, (n, 20_000))
    rejected = (stats.ttest_ind(first, second).pvalue < alpha).mean()
    assert power(effect, n, alpha=alpha) == pytest.approx(rejected, abs=0.012)


@pytest.mark.parametrize("effect", [0.3, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("wanted", [0.5, 0.8, 0.95])
def test_needed_runs_are_the_fewest_that_reach_the_power(effect, wanted):
    runs = need(effect, wanted)
    assert power(effect, runs) >= wanted
    assert runs == 2 or power(effect, runs - 1) < wanted


@pytest.mark.parametrize(
    ("probability", "wanted", "alpha", "runs"),
    [
        (0.75, 0.8, 0.05, 21),  # (1.95996 + 0.84162)^2 / (6 x 0.25^2) = 20.93
        (0.25, 0.8, 0.05, 21),  # as far on the other side
        (0.75, 0.9, 0.05, 29),  # (1.95996 + 1.28155)^2 / 0.375 = 28.02
        (0.75, 0.8, 0.01, 32),  # (2.57583 + 0.84162)^2 / 0.375 = 31.14
        (0.55, 0.8, 0.05, 524),  # 7.8489 / 0.015 = 523.3
        (1.0, 0.8, 0.05, 6),  # 7.8489 / 1.5 = 5.2
        (1.0, 0.3, 0.05, 5),  # 1.4: fewer than 5 decide nothing
        (1.0, 0.3, 0.01, 8),  # nor do 7 at 1 %: 2^-6 > 1.25 x 0.01
    ],
)
def test_runs_to_show_a_tendency_follow_noethers_formula(probability, wanted, alpha, runs):
    assert runs_to_show_tendency(probability, wanted, alpha=alpha) == runs


def test_normal_effect_size_equals_its_tendency():
    """P(first > second) is Phi(effect / sqrt 2): 0.7602 for one standard deviation."""
    for effect in (0.5, 1.0, -1.0):
        share = float(stats.norm.cdf(effect / np.sqrt(2.0)))
        assert need(effect, test="compare") == runs_to_show_tendency(share)


@pytest.mark.parametrize(
    ("effect", "n", "interims", "seen"),
    [(2.0, 5, 1, 0.70), (1.0, 10, 1, 0.54), (1.5, 15, 3, 0.96), (0.0, 10, 1, 0.05)],
)
def test_compare_power_equals_the_documented_values(effect, n, interims, seen):
    """docs/statistics.md; three standard errors of 100 comparisons are up to 0.15."""
    found = power(effect, n, test="compare", interims=interims, draws=100)
    assert found == pytest.approx(seen, abs=3.0 * np.sqrt(max(seen * (1 - seen), 0.04) / 100))


def test_compare_power_is_deterministic_by_key():
    again = [power(1.0, 8, test="compare", draws=60, key=key) for key in (3, 3, 4)]
    assert again[0] == again[1]
    assert again[0] != again[2]
    assert power(1.0, 8, test="compare", draws=60, key=3, alpha=0.2) > again[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: runs_to_show_tendency(0.5), "probability of one half"),
        (lambda: runs_to_show_tendency(0.5001), "needs over 1,000,000 runs"),
        (lambda: runs_to_show_tendency(0.7, 0.01), "power must lie between"),
        (lambda: need(1.0, test="z"), "unknown test 'z'"),
        (lambda: power(1.0, 4, test="compare"), "cannot decide anything"),
    ],
)
def test_seed_power_refuses_invalid_arguments(wrong, said):
    with pytest.raises(Mistake, match=said):
        wrong()


def test_tendency_power_refuses_values_outside_0_and_1():
    with pytest.raises(Mistake, match="power"):
        runs_to_show_tendency(0.7, power=1.5)
