"""Declared bounds and what a failed run counts as: what is accepted, and what is refused."""

import math

import pytest

from sterling.statistics.declared import checked, checked_failed, unseen_share
from sterling.types import Mistake


@pytest.mark.parametrize("failed", [None, "worst", "exclude", 0, -100.0])
def test_what_a_failed_run_may_count_as(failed):
    assert checked_failed(failed) == failed


@pytest.mark.parametrize("failed", [math.nan, math.inf, True, "best", [1.0]])
def test_what_a_failed_run_cannot_count_as(failed):
    with pytest.raises(Mistake, match="a finite number, 'worst' or 'exclude'; got"):
        checked_failed(failed)


def test_infinity_declares_nothing():
    assert checked((-math.inf, 5)) == (None, 5.0)
    assert checked((0, math.inf)) == (0.0, None)


def test_the_share_that_runs_miss_altogether_by_hand():
    assert unseen_share(5) == pytest.approx(1 - 0.05 ** (1 / 5))  # 0.5493^5 = 0.05
