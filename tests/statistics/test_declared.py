"""Declared bounds and what a failed run counts as: what is accepted, and what is refused."""

import math

import pytest

from sterling.statistics.scores.score_bounds import check_failed_score, parse_bounds, unseen_share
from sterling.types import Mistake


@pytest.mark.parametrize("failed", [None, "worst", "exclude", 0, -100.0])
def test_what_a_failed_run_may_count_as(failed):
    assert check_failed_score(failed) == failed


@pytest.mark.parametrize("failed", [math.nan, math.inf, True, "best", [1.0]])
def test_what_a_failed_run_cannot_count_as(failed):
    with pytest.raises(Mistake, match="a finite number, 'worst' or 'exclude'; got"):
        check_failed_score(failed)


def test_infinity_declares_nothing():
    assert parse_bounds((-math.inf, 5)) == (None, 5.0)
    assert parse_bounds((0, math.inf)) == (0.0, None)


def test_the_share_that_runs_miss_altogether_by_hand():
    assert unseen_share(5) == pytest.approx(1 - 0.05 ** (1 / 5))  # 0.5493^5 = 0.05
