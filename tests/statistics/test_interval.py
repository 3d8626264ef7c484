"""Numbers a person can check, coverage, and wrong use."""

import numpy as np
import pytest

from sterling.statistics import Estimate, estimate
from sterling.types import Mistake


def test_known_interval():
    # mean 3, s = sqrt(2.5), s / sqrt(5) = 0.70711; t table: t_4(0.975) = 2.776
    made = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert made.value == 3.0
    assert made.low == pytest.approx(3.0 - 2.776 * 0.70711, abs=1e-3)
    assert made.high == pytest.approx(3.0 + 2.776 * 0.70711, abs=1e-3)
    assert (made.n, made.method, made.level) == (5, "t", 0.95)


def test_two_runs_need_a_wide_interval():
    made = estimate([0, 2])  # s / sqrt(2) = 1; t_1(0.975) = 12.706
    assert made.high - made.value == pytest.approx(12.706, abs=1e-3)


def test_level():
    made = estimate(np.asarray([1.0, 2.0, 3.0, 4.0, 5.0]), level=0.9)  # t_4(0.95) = 2.132
    assert made.high - made.value == pytest.approx(2.132 * 0.70711, abs=1e-3)


def test_coverage_is_what_it_says():
    rng = np.random.default_rng(0)
    made = [estimate(rng.normal(7.0, 3.0, 4)) for _ in range(2000)]
    held = np.mean([one.low <= 7.0 <= one.high for one in made])
    assert abs(held - 0.95) < 0.015  # three standard errors of a share of 2000


def test_one_run_has_no_interval():
    made = estimate([4512.3])
    assert (made.value, made.low, made.high, made.n) == (4512.3, None, None, 1)
    assert made.method == "none (one run)"
    assert str(made) == "4512 (one run, no interval)"


def test_equal_runs_have_width_zero():
    made = estimate([0.1, 0.1, 0.1])
    assert made.value == made.low == made.high


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([4400.0, 4512.0, 4624.0], "4512 [4234, 4790]"),
        ([0.40, 0.45, 0.50], "0.4500 [0.3258, 0.5742]"),
        ([12.0, 13.0, 14.0], "13.00 [10.52, 15.48]"),
        ([0.0, 0.0], "0.000 [0.000, 0.000]"),
    ],
)
def test_written(scores, text):
    assert str(estimate(scores)) == text


def test_to_json():
    assert estimate([1.0, 1.0]).to_json() == {
        "value": 1.0, "low": 1.0, "high": 1.0, "n": 2, "method": "t", "level": 0.95,
    }  # fmt: skip


@pytest.mark.parametrize("scores", [[1.0, float("nan")], [float("inf"), 1.0]])
def test_failed_runs_must_be_left_out(scores):
    with pytest.raises(Mistake, match="1 of 2 scores are not finite; leave out"):
        estimate(scores)


def test_wrong_use():
    with pytest.raises(Mistake, match="one score per run"):
        estimate([])
    with pytest.raises(Mistake, match="between 0 and 1"):
        estimate([1.0, 2.0], level=95.0)


def test_from_json():
    made = estimate([1.0, 2.0])
    plain = made.to_json()
    assert Estimate.from_json({**plain, "per_seed": [1.0, 2.0]}) == made
    value = plain.pop("value")
    assert Estimate.from_json({**plain, "estimate": value}) == made  # as in result.json
