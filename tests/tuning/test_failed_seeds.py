"""A seed that failed makes no settings look better: not in the search, not in what it came to."""

from pathlib import Path

import pytest

from sterling.training.settings import resolve
from sterling.training.trained import bounds
from sterling.tuning import search
from sterling.tuning.lanes import Plan
from sterling.tuning.outcome import _difference, _estimated, shown


def plan(**options):
    settings = resolve("ppo", "CartPole-v1", steps=4_096, **options)
    return Plan(settings, "last", Path(), within=bounds(settings))


def test_the_search_never_prefers_settings_that_lost_a_seed():
    assert search.mean([490.0, None]) == search.lower_bound([490.0, None]) == -float("inf")
    assert search.mean([20.0, 30.0]) > search.mean([490.0, 500.0, None])


def test_the_test_of_the_incumbent_has_no_single_number():
    made = _estimated([490.0, 480.0, None], plan())
    assert (made["estimate"], made["without_score"]) == (None, 1)
    assert made["survivors"]["value"] == 485.0
    assert made["at_worst"]["value"] == pytest.approx(970 / 3)
    assert shown(made).startswith("1 of 3 seeds failed; mean of the other 2: 485")
    assert _estimated([490.0, 480.0, None], plan(failed="worst"))["estimate"] == (
        pytest.approx(970 / 3)
    )


def test_a_difference_needs_both_sides_and_stays_within_what_is_possible():
    made = _difference([490.0, 500.0, None], [10.0, 500.0, 5.0], plan())
    assert made["estimate"] is None
    assert made["survivors"]["value"] == 240.0
    same = _difference([500.0] * 3, [500.0] * 3, plan())
    assert -500 <= same["low"] < 0 < same["high"] <= 500
