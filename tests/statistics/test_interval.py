"""Numbers a person can check, coverage, and wrong use."""

import numpy as np
import pytest

from sterling.statistics import Estimate, estimate
from sterling.types import Mistake


def test_t_interval_of_five_scores_matches_hand_values():
    # mean 3, s = sqrt(2.5), s / sqrt(5) = 0.70711; t table: t_4(0.975) = 2.776
    made = estimate([1.0, 2.0, 3.0, 4.0, 5.0], interval="t")
    assert made.value == 3.0
    assert made.low == pytest.approx(3.0 - 2.776 * 0.70711, abs=1e-3)
    assert made.high == pytest.approx(3.0 + 2.776 * 0.70711, abs=1e-3)
    assert (made.n, made.method, made.level) == (5, "t", 0.95)


def test_t_interval_of_two_runs_is_wide():
    made = estimate([0, 2], interval="t")  # s / sqrt(2) = 1; t_1(0.975) = 12.706
    assert made.high - made.value == pytest.approx(12.706, abs=1e-3)


def test_t_interval_follows_the_confidence_level():
    made = estimate(
        np.asarray([1.0, 2.0, 3.0, 4.0, 5.0]), level=0.9, interval="t"
    )  # t_4(0.95) = 2.132
    assert made.high - made.value == pytest.approx(2.132 * 0.70711, abs=1e-3)


def test_estimate_interval_is_cut_at_declared_bounds():
    wide = estimate([0.9, 0.94, 0.7])
    assert wide.low > 0.0
    assert wide.high > 1.0
    cut = estimate([0.9, 0.94, 0.7], within=(0.0, 1.0))
    assert (cut.value, cut.low, cut.high) == (wide.value, wide.low, 1.0)
    assert estimate([0.9, 0.94, 0.7], within=(0, None)) == wide
    assert estimate([0.5], within=(0.0, 1.0)).high is None


def test_estimate_of_five_seeds_at_the_cap():
    made = estimate([500.0] * 5, within=(0, 500))
    assert str(made) == "500.0 [239.1, 500.0]"
    assert made.method == "bounded"


def test_estimate_near_a_cap_stays_below_and_allows_for_failure():
    made = estimate([500, 500, 487], within=(0, 500))
    assert 100 < made.low < 200  # three seeds that did not fail: one in three might
    assert made.value < made.high <= 500
    assert estimate([500, 500, 487]).high > 500  # undeclared


def test_estimate_does_not_treat_zero_returns_as_success_rates():
    made = estimate([0.0, 0.0, 0.0])  # points of Montezuma's Revenge
    assert (made.low, made.high) == (None, None)
    assert str(made) == "0.000 (no spread seen in 3)"
    assert estimate([0, 1, 0]).method == "t"
    assert estimate([0, 0, 0], within=(0, 1)).high == pytest.approx(1 - 0.025 ** (1 / 3))


def test_estimate_of_cartpole_returns_stays_within_bounds():
    made = estimate([242.6 + 100 * x for x in (-1, 1, 0.5, -0.5, 0)], within=(0, 500))
    assert 0 <= made.low < made.high <= 500
    assert made.high - made.low < 250
    with_one_at_the_cap = estimate([500, 113.2, 114.6], within=(0, 500))
    assert (with_one_at_the_cap.low, with_one_at_the_cap.high) == pytest.approx((55, 464), abs=5)


def test_estimate_with_one_declared_bound_has_one_bounded_end():
    scores = [0.0, 20.0, 3.0]
    made, students = estimate(scores, within=(0, None)), estimate(scores)
    assert made.method == "bounded below, t above"
    assert 0.0 < made.low < made.value
    assert made.high == students.high
    mirrored = estimate([-x for x in scores], within=(None, 0))
    assert (mirrored.low, mirrored.high) == pytest.approx((-made.high, -made.low))
    assert mirrored.method == "t below, bounded above"
    assert estimate([20, 21, 22], within=(0, None)).method == "t"  # far from it


def test_estimate_drops_and_reports_a_violated_bound():
    made = estimate([3.0, 700.0, 200.0], within=(0, 500))
    assert made.method.endswith("declared upper bound 500 dropped: a score is 700")
    assert made.high > 500
    assert "lower bound 0 dropped" in estimate([-3.0, 5.0], within=(0, 500)).method
    assert "dropped" not in estimate([0.3, 1.0 + 1e-8], within=(0, 1)).method  # float32 sums
    with pytest.raises(Mistake, match="must lie below the upper one"):
        estimate([1.0], within=(5, 0))
    with pytest.raises(Mistake, match="two numbers"):
        estimate([1.0], within=(0, 1, 2))


def test_estimate_caution_names_the_unseen_collapse_share():
    text = "5 seeds cannot exclude that up to 45 % of runs fail"
    assert estimate([1.0, 2.0, 3.0, 4.0, 5.0]).caution == text
    assert estimate([500.0] * 5, within=(0, 500)).caution == ""  # the interval allows for it
    assert estimate([1.0]).caution == ""


def test_estimate_of_one_run_has_no_interval():
    made = estimate([4512.3])
    assert (made.value, made.low, made.high, made.n) == (4512.3, None, None, 1)
    assert made.method == "none (one run)"
    assert str(made) == "4512 (one run, no interval)"


def test_estimate_of_equal_runs_has_no_interval_without_bounds():
    made = estimate([0.1, 0.1, 0.1])
    assert (made.value, made.low, made.high) == (pytest.approx(0.1), None, None)
    assert made.method == "none (no spread seen)"
    assert estimate([[0.1, 0.3], [0.1, 0.3]]).low is None
    inside = estimate([0.1, 0.1, 0.1], within=(0, 1))  # two bounds say how far others may lie
    assert inside.low < 0.05
    assert inside.high > 0.5


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([4400.0, 4512.0, 4624.0], "4512 [4234, 4790]"),
        ([0.40, 0.45, 0.50], "0.4500 [0.3258, 0.5742]"),
        ([12.0, 13.0, 14.0], "13.00 [10.52, 15.48]"),
        ([-2.0, -2.0], "-2.000 (no spread seen in 2)"),
    ],
)
def test_estimate_text_format(scores, text):
    assert str(estimate(scores, interval="t")) == text


def test_estimate_to_json():
    assert estimate([3.0, 3.0]).to_json() == {
        "value": 3.0, "low": None, "high": None, "n": 2, "method": "none (no spread seen)",
        "level": 0.95,
    }  # fmt: skip


def test_estimate_of_non_finite_scores_needs_a_failed_declaration():
    scores = [1.0, 2.0, float("nan"), 4.0]
    with pytest.raises(Mistake, match=r"1 of 4 scores are not finite .* failed=<number>"):
        estimate(scores)
    counted = estimate(scores, failed=-10, interval="t")
    assert (counted.value, counted.n) == (-0.75, 4)
    assert counted.method == "t; 1 of 4 failed, counted as -10"
    dropped = estimate(scores, failed="exclude")
    assert dropped.value == pytest.approx(7 / 3)
    assert (dropped.n, dropped.method) == (3, "t; 1 of 4 failed, excluded")
    worst = estimate(scores, failed="worst", within=(-5, None))
    assert worst.value == pytest.approx(0.5)
    with pytest.raises(Mistake, match="none is declared"):
        estimate(scores, failed="worst")
    with pytest.raises(Mistake, match="1 of 2 scores are infinite"):
        estimate([float("inf"), 1.0])
    with pytest.raises(Mistake, match="no run counts on task '0'"):
        estimate([float("nan")], failed="exclude")
    with pytest.raises(Mistake, match="not a score; give a finite number"):
        estimate(scores, failed=float("nan"))


def test_estimate_refuses_invalid_arguments():
    with pytest.raises(Mistake, match="at least one score per run"):
        estimate([])
    with pytest.raises(Mistake, match="between 0 and 1"):
        estimate([1.0, 2.0], level=95.0)
    with pytest.raises(Mistake, match="unknown interval 'bayes'"):
        estimate([1.0, 2.0], interval="bayes")
    with pytest.raises(Mistake, match="unknown statistic 'mode'"):
        estimate([1.0, 2.0], "mode")
    with pytest.raises(Mistake, match="'t' works only for the mean"):
        estimate([1.0, 2.0], "iqm", interval="t")
    with pytest.raises(Mistake, match="success rates must lie between 0 and 1"):
        estimate([1.0, 2.0], interval="wilson")
    with pytest.raises(Mistake, match="success rates must lie between 0 and 1"):
        estimate([0.5, 1.5], interval="wilson")  # one of them is none
    with pytest.raises(Mistake, match="counts successes"):
        estimate([0.5, 1.0], interval="exact")
    with pytest.raises(Mistake, match="time axis"):
        estimate([[[1.0, 2.0]], [[1.0, 2.0]]])
    with pytest.raises(Mistake, match="a key is a whole number"):
        estimate([[1.0, 2.0], [2.0, 3.0]], "iqm", key=-1)


def test_estimate_from_json():
    made = estimate([1.0, 2.0])
    plain = made.to_json()
    assert Estimate.from_json({**plain, "per_seed": [1.0, 2.0]}) == made
    value = plain.pop("value")
    assert Estimate.from_json({**plain, "estimate": value}) == made  # as in result.json
