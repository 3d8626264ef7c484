"""Verdicts about means: only within bounds, hardly ever wrong, and able to decide."""

import numpy as np
import pytest

from sterling.statistics import compare
from sterling.types import Mistake


def of_means(scores, within, **rest):
    (made,) = compare(scores, about="mean", within=within, **rest).decisions
    return made


def test_without_bounds_it_is_refused():
    scores = {"a": np.arange(5.0), "b": np.arange(5.0)}
    with pytest.raises(Mistake, match=r"needs the bounds of the scores, within=\(low, high\)"):
        compare(scores, about="mean")
    for within in ((0.0, None), (5.0, 0.0)):
        with pytest.raises(Mistake, match="between two finite bounds"):
            compare(scores, about="mean", within=within)
    with pytest.raises(Mistake, match=r"b has a score of 4, outside|a has a score of 4, outside"):
        compare(scores, about="mean", within=(0.0, 3.0))
    with pytest.raises(Mistake, match="no about='median'"):
        compare(scores, about="median")


def test_a_collapse_that_no_run_showed_decides_nothing():
    steady, lucky = np.linspace(790, 810, 5), np.full(5, 1000.0)
    made = of_means({"a": lucky, "b": steady}, (0.0, 1000.0), interims=1)
    assert made.verdict == "equal"
    assert made.means.low < 0.0 < made.difference < made.means.high


def test_a_large_difference_of_means_is_decided_and_the_interval_says_so():
    low, high = np.linspace(50, 60, 20), np.linspace(440, 450, 20)
    made = of_means({"a": high, "b": low}, (0.0, 500.0), interims=1, per_interim=None)
    assert (made.verdict, made.about) == ("larger", "mean")
    assert 0.0 < made.means.low < 390.0 < made.means.high
    back = of_means({"a": low, "b": high}, (0.0, 500.0), interims=1, per_interim=None)
    assert (back.verdict, back.means.high) == ("smaller", pytest.approx(-made.means.low))
    early = compare({"a": high, "b": low}, about="mean", within=(0.0, 500.0), interims=4)
    assert early.decisions[0].verdict == "larger"
    assert early.decisions[0].interim > 1  # five runs leave too much open
