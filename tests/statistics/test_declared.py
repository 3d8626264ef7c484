"""Declared bounds and what a failed run counts as: what is accepted, and what is refused."""

import math

import pytest

from sterling.statistics.scores.score_bounds import check_failed_score, parse_bounds, unseen_share
from sterling.types import Mistake


@pytest.mark.parametrize("failed", [None, "worst", "exclude", 0, -100.0])
def test_failed_score_declaration_accepts_number_worst_or_exclude(failed):
    assert check_failed_score(failed) == failed


@pytest.mark.parametrize("failed", [math.nan, math.inf, True, "best", [1.0]])
def test_failed_score_declaration_refuses_other_values(failed):
    with pytest.raises(Mistake, match="a finite number, 'worst' or 'exclude'; got"):
        check_failed_score(failed)


def test_score_bounds_treat_infinity_as_undeclared():
    assert parse_bounds((-math.inf, 5)) == (None, 5.0)
    assert parse_bounds((0, math.inf)) == (0.0, None)


def test_unseen_failure_share_matches_hand_value():
    assert unseen_share(5) == pytest.approx(1 - 0.05 ** (1 / 5))  # 0.5493^5 = 0.05
