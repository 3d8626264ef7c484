"""pass@k: equal to going through all subsets, without bias, with intervals that hold."""

import itertools

import numpy as np
import pytest

from sterling.evaluation.language.pass_at_k import pass_at_k, pass_at_k_curve, plotted_ks
from sterling.evaluation.language.seed_and_problem_intervals import (
    two_way_estimate,
    two_way_without_missing,
)
from sterling.types import Mistake


def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer():
    for answers in (1, 2, 5, 7):
        for right in range(answers + 1):
            marks = [True] * right + [False] * (answers - right)
            for k in range(1, answers + 1):
                subsets = list(itertools.combinations(marks, k))
                share = sum(map(any, subsets)) / len(subsets)
                assert pass_at_k(np.array([right]), answers, k)[0] == pytest.approx(share)


@pytest.mark.parametrize("chance", [0.02, 0.2, 0.7])
@pytest.mark.parametrize("k", [1, 4, 10])
def test_pass_at_k_is_unbiased_where_the_plug_in_is_not(chance, k):
    right = np.random.default_rng(0).binomial(10, chance, 40_000)
    found, truth = pass_at_k(right, 10, k), 1 - (1 - chance) ** k
    error = found.std() / np.sqrt(found.size)
    assert abs(found.mean() - truth) < 4 * error + 1e-12
    plugged = 1 - (1 - right / 10) ** k
    if k > 1:
        assert plugged.mean() < truth - 4 * plugged.std() / np.sqrt(found.size)


def test_pass_at_k_of_many_answers_does_not_overflow():
    found = pass_at_k(np.array([0, 1, 5000]), 10_000, 5000)
    assert found == pytest.approx([0.0, 0.5, 1.0])


@pytest.mark.parametrize(("right", "k"), [(1, 0), (1, 5), (5, 1), (-1, 1)])
def test_pass_at_k_refuses_impossible_counts(right, k):
    with pytest.raises(Mistake):
        pass_at_k(np.array([right]), 4, k)


def test_pass_at_k_curve_has_powers_of_two_and_rises():
    assert plotted_ks(1) == (1,)
    assert plotted_ks(16) == (1, 2, 4, 8, 16)
    assert plotted_ks(12) == (1, 2, 4, 8, 12)
    solved = np.random.default_rng(0).random((2, 20, 12)) < 0.3
    values = [made.value for made in pass_at_k_curve(solved).values()]
    assert values == sorted(values)
    assert values[0] == pytest.approx(solved.mean())
    assert values[-1] == pytest.approx(solved.any(2).mean())


def world(rng, seeds, problems, middle):
    """Chances of success with a part of the problem, of the seed, and of both."""
    size = (seeds, problems)
    score = middle + rng.normal(size=(1, problems)) + 0.4 * rng.normal(size=(seeds, 1))
    return 1 / (1 + np.exp(-score - 0.3 * rng.normal(size=size)))


@pytest.mark.parametrize(("seeds", "middle", "k"), [(3, 0.0, 1), (5, 0.0, 4), (3, 4.0, 4)])
def test_seed_and_problem_intervals_of_pass_at_k_cover(seeds, middle, k):
    rng, answers, trials = np.random.default_rng(1), 8, 300
    everyone = world(rng, 1500, 1500, middle)
    truth = (1 - (1 - everyone) ** k).mean()
    held = 0
    for _ in range(trials):
        right = rng.binomial(answers, world(rng, seeds, 40, middle))
        made = two_way_estimate(pass_at_k(right, answers, k))
        held += made.low <= truth <= made.high
    assert held / trials > 0.93


@pytest.mark.slow
def test_seed_and_problem_interval_of_one_seed_covers_problems_and_says_so():
    rng, trials = np.random.default_rng(2), 300
    chances = 1 / (1 + np.exp(-1.0 - 1.5 * rng.normal(size=200_000)))
    held = 0
    for _ in range(trials):
        right = rng.binomial(8, rng.choice(chances, (1, 40)))
        made = two_way_estimate(pass_at_k(right, 8, 2))
        held += made.low <= (1 - (1 - chances) ** 2).mean() <= made.high
    assert held / trials > 0.92
    assert "one seed" in made.method
    assert made.n == 40


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_seed_and_problem_interval_of_equal_values_is_not_empty(seeds, value):
    made = two_way_estimate(np.full((seeds, 50), value))
    assert made.value == value
    assert made.high - made.low == pytest.approx(1 - 0.025 ** (1 / 50))


def test_seed_and_problem_interval_widens_with_seed_differences():
    rng = np.random.default_rng(3)
    alike = 0.5 + 0.2 * rng.normal(size=(1, 60)) + np.zeros((3, 1))
    apart = alike + np.array([[-0.2], [0.0], [0.2]])
    narrow, wide = (two_way_estimate(np.clip(x, 0, 1)) for x in (alike, apart))
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_seed_and_problem_interval_leaves_out_problems_without_a_value():
    values = np.array([[1.0, np.nan, 2.0], [1.0, 5.0, 2.0]])
    made = two_way_without_missing(values)
    assert made.value == pytest.approx(1.5)
    assert "1 of 3 problems have none" in made.method
    assert np.isnan(two_way_without_missing(np.full((1, 2), np.nan)).value)
