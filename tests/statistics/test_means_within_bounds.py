"""Verdicts about means: only within bounds, hardly ever wrong, and able to decide."""

import numpy as np
import pytest

from sterling.statistics import compare
from sterling.types import Mistake


def of_means(scores, within, **rest):
    (made,) = compare(scores, about="mean", within=within, **rest).decisions
    return made


def test_comparison_of_means_refuses_missing_bounds():
    scores = {"a": np.arange(5.0), "b": np.arange(5.0)}
    with pytest.raises(Mistake, match=r"needs the bounds of the scores, within=\(low, high\)"):
        compare(scores, about="mean")
    for within in ((0.0, None), (5.0, 0.0)):
        with pytest.raises(Mistake, match="must be two finite numbers, the lower one first"):
            compare(scores, about="mean", within=within)
    with pytest.raises(Mistake, match=r"b has a score of 4, outside|a has a score of 4, outside"):
        compare(scores, about="mean", within=(0.0, 3.0))
    with pytest.raises(Mistake, match="unknown about='median'"):
        compare(scores, about="median")


def test_comparison_of_means_allows_for_an_unseen_collapse():
    steady, lucky = np.linspace(790, 810, 5), np.full(5, 1000.0)
    made = of_means({"a": lucky, "b": steady}, (0.0, 1000.0), interims=1)
    assert made.verdict == "equal"
    assert made.means.low < 0.0 < made.difference < made.means.high


def test_comparison_of_means_decides_a_large_difference():
    low, high = np.linspace(50, 60, 20), np.linspace(440, 450, 20)
    made = of_means({"a": high, "b": low}, (0.0, 500.0), interims=1, per_interim=None)
    assert (made.verdict, made.about) == ("larger", "mean")
    assert 0.0 < made.means.low < 390.0 < made.means.high
    back = of_means({"a": low, "b": high}, (0.0, 500.0), interims=1, per_interim=None)
    assert (back.verdict, back.means.high) == ("smaller", pytest.approx(-made.means.low))
    early = compare({"a": high, "b": low}, about="mean", within=(0.0, 500.0), interims=4)
    assert early.decisions[0].verdict == "larger"
    assert early.decisions[0].interim > 1  # five runs leave too much open


def test_comparison_of_means_is_equal_where_the_interval_touches_0():
    """Five of five at a bound, one-sided error 1/32: Clopper and Pearson's ends are 1/2, so the
    means of two such algorithms lie in [-1, 0] and [0, 1]; (1/2)^5 = 1/32."""
    runs = {"a": np.full(5, -1.0), "b": np.full(5, 1.0)}
    made = of_means(runs, (-1.0, 1.0), interims=1, alpha=1 / 8)
    assert (made.means.low, made.means.high, made.verdict) == (-2.0, 0.0, "equal")
    back = of_means({"a": runs["b"], "b": runs["a"]}, (-1.0, 1.0), interims=1, alpha=1 / 8)
    assert (back.means.low, back.means.high, back.verdict) == (0.0, 2.0, "equal")


def test_comparison_of_means_waits_for_the_runs_of_a_look():
    scores = {"a": np.linspace(0.4, 0.6, 5), "b": np.linspace(0.5, 0.7, 5)}
    made = compare(scores, about="mean", within=(0.0, 1.0), interims=3)
    assert (made.interim, made.finished) == (1, False)
    assert (made.next_runs, made.runs) == ({"a": 5, "b": 5}, {"a": 5, "b": 5})
    assert made.decisions[0].verdict == "undecided"
