"""A seed that failed makes no settings look better: not in the search, not in what it came to."""

from pathlib import Path

import pytest

from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.trained_run import run_return_bounds
from sterling.tuning.jobs.parallel_trials import StudyPlan
from sterling.tuning.searchers import searchers
from sterling.tuning.study_outcome import _difference_json, _headline_json, estimate_text


def plan(**options):
    settings = resolve_settings("ppo", "CartPole-v1", steps=4_096, **options)
    return StudyPlan(settings, "last", Path(), within=run_return_bounds(settings))


def test_search_scores_trials_with_a_failed_seed_lowest():
    assert (
        searchers.mean_score([490.0, None])
        == searchers.lower_bound_score([490.0, None])
        == -float("inf")
    )
    assert searchers.mean_score([20.0, 30.0]) > searchers.mean_score([490.0, 500.0, None])


def test_incumbent_test_with_failed_seeds_has_no_single_number():
    made = _headline_json([490.0, 480.0, None], plan())
    assert (made["estimate"], made["without_score"]) == (None, 1)
    assert made["survivors"]["value"] == 485.0
    assert made["at_worst"]["value"] == pytest.approx(970 / 3)
    assert estimate_text(made).startswith("1 of 3 seeds failed; mean of the other 2: 485")
    assert _headline_json([490.0, 480.0, None], plan(failed="worst"))["estimate"] == (
        pytest.approx(970 / 3)
    )


def test_study_difference_needs_both_sides_and_respects_bounds():
    made = _difference_json([490.0, 500.0, None], [10.0, 500.0, 5.0], plan())
    assert made["estimate"] is None
    assert made["survivors"]["value"] == 240.0
    same = _difference_json([500.0] * 3, [500.0] * 3, plan())
    assert -500 <= same["low"] < 0 < same["high"] <= 500
