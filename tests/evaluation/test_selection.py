"""How well estimates order policies, by hand."""

import pytest

from sterling.evaluation import rank_correlation, regret
from sterling.statistics import Estimate
from sterling.types import Mistake


def test_rank_correlation_of_known_orders():
    assert rank_correlation([1.0, 5.0, 9.0], [0.1, 0.2, 0.9]) == pytest.approx(1.0)
    assert rank_correlation([9.0, 5.0, 1.0], [0.1, 0.2, 0.9]) == pytest.approx(-1.0)
    # ranks 1 2 3 4 against 2 1 4 3: 1 - 6 * 4 / (4 * 15)
    assert rank_correlation([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0]) == pytest.approx(0.6)


def test_policy_selection_regret_is_the_lost_return_of_the_choice():
    estimates, truths = [3.0, 2.0, 1.0], [5.0, 10.0, 0.0]
    assert regret(estimates, truths) == pytest.approx(0.5)
    assert regret(estimates, truths, k=2) == 0.0
    assert regret([1.0, 2.0, 3.0], truths) == 1.0


def test_policy_selection_accepts_estimates_with_intervals():
    made = [Estimate(x, None, None, 1, "none", 0.95) for x in (1.0, 2.0)]
    assert regret(made, [0.0, 1.0]) == 0.0
    assert rank_correlation(made, [0.0, 1.0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: regret([1.0], [1.0, 2.0]), "do not match"),
        (lambda: regret([1.0, 2.0], [1.0, 2.0], k=3), "k is 3; it must lie between 1"),
        (lambda: rank_correlation([1.0, 1.0], [1.0, 2.0]), "with different values"),
    ],
)
def test_policy_selection_refuses_invalid_arguments(call, said):
    with pytest.raises(Mistake, match=said):
        call()
