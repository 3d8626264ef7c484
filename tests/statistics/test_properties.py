"""What must hold for every table of scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sterling.statistics import auc, compare, estimate, improve, normalise, profile, ranks
from sterling.statistics.intervals.aggregates import AGGREGATES_BY_NAME

FINITE = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))
SHAPES = st.tuples(st.integers(2, 6), st.integers(1, 4))
TABLES = SHAPES.flatmap(lambda shape: arrays(np.float64, shape, elements=FINITE))
quick = settings(max_examples=40)


@quick
@given(TABLES, st.lists(FINITE, min_size=1, max_size=8, unique=True))
def test_performance_profiles_decrease(scores, taus):
    made = profile(scores, sorted(taus))
    for line in (made.value, made.low, made.high):
        assert (np.diff(line) <= 1e-12).all()
    assert ((made.low <= made.value) & (made.value <= made.high)).all()
    assert made.low.min() >= 0.0
    assert made.high.max() <= 1.0


@quick
@given(st.data(), SHAPES, st.integers(2, 6))
def test_probability_of_improvement_of_both_orders_sums_to_one(data, shape, other):
    first = data.draw(arrays(np.float64, shape, elements=FINITE))
    second = data.draw(arrays(np.float64, (other, shape[1]), elements=FINITE))
    there, back = improve(first, second), improve(second, first)
    assert there.value + back.value == pytest.approx(1.0, abs=1e-12)
    assert there.low + back.high == pytest.approx(1.0, abs=1e-9)
    assert 0.0 <= there.low <= there.value <= there.high <= 1.0


@quick
@given(
    TABLES,
    st.floats(0.1, 50.0),
    st.floats(-500.0, 500.0),
    st.sampled_from(sorted(AGGREGATES_BY_NAME)),
)
def test_estimate_is_equivariant_to_the_unit_of_scores(scores, scale, shift, what):
    if what == "gap":
        return  # it is in the unit of its gamma
    plain = estimate(scores, what, draws=200)
    moved = estimate(scores * scale + shift, what, draws=200)
    assert moved.method == plain.method
    for name in ("value", "low", "high"):
        before, after = getattr(plain, name), getattr(moved, name)
        assert (before is None) == (after is None)
        if before is not None:
            assert after == pytest.approx(before * scale + shift, rel=1e-6, abs=1e-5 * scale + 1e-5)


@quick
@given(TABLES)
def test_estimate_interval_of_negated_scores_is_mirrored(scores):
    for bounds in (None, (-1e3, 1e3), (-1e3, None)):
        turned = None if bounds is None else (bounds[1] and -bounds[1], -bounds[0])
        made, mirrored = estimate(scores, within=bounds), estimate(-scores, within=turned)
        if made.low is None:
            assert mirrored.low is None
            continue
        assert (mirrored.low, mirrored.high) == pytest.approx((-made.high, -made.low), abs=1e-3)


@quick
@given(TABLES)
def test_the_iqm_lies_between_the_quartiles(scores):
    low, high = np.sort(scores, axis=None)[[scores.size // 4, scores.size - scores.size // 4 - 1]]
    value = estimate(scores, "iqm", interval="none").value
    assert low - 1e-9 <= value <= high + 1e-9


@quick
@given(TABLES, st.sampled_from(["mean", "median", "iqm", "gap", "cvar", "worst"]))
def test_an_interval_holds_its_estimate_and_is_the_same_again(scores, what):
    made = estimate(scores, what, draws=150, key=3)
    assert made == estimate(scores.copy(), what, draws=150, key=3)  # to the bit
    if made.low is not None:
        assert made.low <= made.value <= made.high


@quick
@given(TABLES)
def test_estimate_interval_respects_bounds_that_leave_the_value_unchanged(scores):
    plain = estimate(scores)
    for bounds in ((-1e3, 1e3), (-1e3, None), (None, 1e3)):
        made = estimate(scores, within=bounds)
        assert made.value == plain.value
        if made.low is not None:
            assert bounds[0] is None or made.low >= bounds[0]
            assert bounds[1] is None or made.high <= bounds[1]
            assert made.low <= made.value <= made.high


@quick
@given(TABLES, st.randoms(use_true_random=False))
def test_estimate_ignores_the_order_of_runs(scores, random):
    order = list(range(len(scores)))
    random.shuffle(order)
    for what in ("mean", "median", "iqm", "gap"):
        one, other = (estimate(rows, what, interval="none") for rows in (scores, scores[order]))
        assert one.value == pytest.approx(other.value, rel=1e-9, abs=1e-9)


@quick
@given(TABLES, TABLES)
def test_normalised_estimate_is_independent_of_other_algorithms(scores, newcomer):
    """Every statistic of one algorithm is a function of its own scores and a fixed table."""
    names = [f"walker-{i}" for i in range(scores.shape[1])]
    alone = estimate(normalise(scores, "dmc", tasks=names), "iqm", draws=150)
    estimate(normalise(newcomer, "dmc", tasks=[f"x{i}" for i in range(newcomer.shape[1])]))
    assert alone == estimate(normalise(scores, "dmc", tasks=names), "iqm", draws=150)


@quick
@given(arrays(np.float64, (4, 12), elements=FINITE))
def test_learning_curve_area_of_constant_curves_is_their_value(runs):
    level = np.repeat(runs[:, :1], 12, axis=1)
    one, other = auc(level), estimate(level[:, 0])
    assert one.value == pytest.approx(other.value, abs=1e-9)


@quick
@given(TABLES, TABLES)
def test_rank_probabilities_sum_to_one(first, second):
    tasks = min(first.shape[1], second.shape[1])
    made = ranks({"a": first[:, :tasks], "b": second[:, :tasks]}, draws=60)
    assert made.mean["a"].value + made.mean["b"].value == pytest.approx(3.0)
    np.testing.assert_allclose(made.probability.sum(0), 1.0)
    np.testing.assert_allclose(made.probability.sum(1), 1.0)


@settings(max_examples=15)
@given(arrays(np.float64, (3, 10), elements=FINITE), st.permutations(["a", "b", "c"]))
def test_comparison_ignores_the_order_of_names(scores, order):
    runs = dict(zip("abc", scores, strict=True))
    one = compare(runs, interims=2, draws=300)
    other = compare({name: runs[name] for name in order}, interims=2, draws=300)
    flip = {"larger": "smaller", "smaller": "larger"}
    said = {(d.first, d.second): d.verdict for d in one.decisions}
    for d in other.decisions:
        here = said.get((d.first, d.second))
        assert d.verdict == (here or flip.get(said.get((d.second, d.first)), "equal"))
