"""How often the default intervals hold what they should, simulated.

Small forms of ``benchmarks/statistics``; a share of 1,500 has a standard error of 0.006.
"""

import numpy as np
import pytest

from sterling.statistics import estimate, improve, profile
from sterling.statistics.intervals.mean_intervals import column_intervals, student_interval

SIZES = (3, 5, 10)
AT_LEAST = 0.93


def drawn(kind, rng, shape):
    """Scores, and their true mean."""
    if kind == "normal":
        return rng.normal(7.0, 3.0, shape), 7.0
    if kind == "log-normal":
        return rng.lognormal(0.0, 1.0, shape), float(np.exp(0.5))
    if kind == "ceiling":
        return 500.0 - rng.lognormal(0.0, 1.0, shape), 500.0 - float(np.exp(0.5))
    rate = float(kind)
    return (rng.random(shape) < rate).astype(float), rate


def measured(scores, true, bounds):
    """Coverage, and the mean width as a multiple of t's (uncut), of ``(run, trial)`` scores."""
    low, high, _ = column_intervals(scores, bounds, 0.95)
    students = np.subtract(*student_interval(scores, 0.95)[::-1])
    held = (low <= true + 1e-9) & (true - 1e-9 <= high)
    return held.mean(), (high - low).mean() / students.mean()


@pytest.mark.parametrize("n", [2, *SIZES, 20])
@pytest.mark.parametrize("bounds", [(None, None), (-100.0, 100.0), (-100.0, None)])
def test_estimate_of_normal_scores_covers_as_students_interval(bounds, n):
    scores, true = drawn("normal", np.random.default_rng(n), (n, 20_000))
    held, width = measured(scores, true, bounds)
    assert 0.94 <= held <= 0.96  # neither too narrow nor too wide
    assert 0.85 <= width <= 1.15


@pytest.mark.parametrize("n", [2, *SIZES, 20])
@pytest.mark.parametrize("fails", [0.02, 0.1, 0.3])
def test_estimate_covers_scores_at_a_cap_with_bounded_width(fails, n):
    rng = np.random.default_rng(n)
    scores = np.where(rng.random((n, 2_000)) < fails, rng.uniform(50, 450, (n, 2_000)), 500.0)
    true = 500.0 - 250.0 * fails
    low, high, is_bounded = column_intervals(scores, (0.0, 500.0), 0.95)
    assert is_bounded.mean() >= 1.0 - fails**n - 0.02
    held = ((low <= true) & (true <= high)).mean()
    assert held >= AT_LEAST
    widest = 500.0 * (1.0 - 0.025 ** (1.0 / n))  # of equal scores at the cap
    students = np.subtract(*student_interval(scores, 0.95)[::-1])
    assert (high - low).mean() <= 1.3 * max(widest, students.mean())
    if (fails, n) == (0.1, 5):
        assert measured(scores, true, (None, None))[0] < 0.5  # t alone does not hold: the test can


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("kind", ["gamma", "uniform", "near the cap"])
def test_estimate_covers_spread_out_scores_between_bounds(kind, n):
    rng = np.random.default_rng(n)
    shape = (n, 2_000)
    scores, true = {
        "gamma": lambda: (np.maximum(500.0 - rng.gamma(1.0, 60.0, shape), 0.0), 440.0144),
        "uniform": lambda: (rng.uniform(0.0, 500.0, shape), 250.0),
        "near the cap": lambda: (np.clip(rng.normal(480.0, 20.0, shape), 0.0, 500.0), 478.3337),
    }[kind]()
    held, _ = measured(scores, true, (0.0, 500.0))
    assert held >= AT_LEAST


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "rate", ["0.7", "0.99", *(pytest.param(x, marks=pytest.mark.slow) for x in ("0.5", "0.9"))]
)
def test_success_rate_interval_covers_and_is_clopper_pearson(rate, n):
    scores, true = drawn(rate, np.random.default_rng(0), (1_000, n))
    made = [estimate(row, within=(0, 1)) for row in scores]
    assert {one.method for one in made} == {"bounded"}
    assert np.mean([one.low <= true <= one.high for one in made]) >= AT_LEAST
    counted = [estimate(row, interval="exact") for row in scores[:50]]
    for one, other in zip(made, counted, strict=False):  # Clopper and Pearson's
        assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=1e-9)


@pytest.mark.parametrize("n", SIZES)
def test_success_rate_interval_covers_over_several_tasks(n):
    rng, rates = np.random.default_rng(n), np.array([0.5, 0.8, 0.9, 0.97])
    made = [estimate((rng.random((n, 4)) < rates).astype(float), within=(0, 1)) for _ in range(500)]
    assert np.mean([one.low <= rates.mean() <= one.high for one in made]) >= AT_LEAST


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "kind", [pytest.param("normal", marks=pytest.mark.slow), "log-normal", "0.7"]
)
@pytest.mark.parametrize("what", ["mean", "iqm"])
def test_aggregate_intervals_cover_over_several_tasks(what, kind, n):
    rng = np.random.default_rng(1)
    true = drawn(kind, rng, (1,))[1]
    if what == "iqm":
        many, _ = drawn(kind, rng, (400_000,))
        true = estimate(many, "iqm", interval="none").value
        if kind == "0.7":
            return  # of successes over one rate the IQM jumps; its mean is the statistic
    within = (0, 1) if kind == "0.7" else None
    tables = [drawn(kind, rng, (n, 8))[0] for _ in range(400)]
    made = [estimate(table, what, draws=300, within=within) for table in tables]
    share = np.mean([one.low <= true <= one.high for one in made])
    least = 0.89 if (what, kind) == ("mean", "log-normal") else AT_LEAST  # docs/statistics.md
    assert share >= least - 2 * np.sqrt(0.95 * 0.05 / 400)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("shift", "true"),
    [(0.0, 0.5), pytest.param(1.0, 0.7602, marks=pytest.mark.slow), (3.0, 0.9831)],
)
def test_probability_of_improvement_interval_covers(n, shift, true):
    rng = np.random.default_rng(2)
    made = [improve(rng.normal(shift, size=n), rng.normal(size=n)) for _ in range(300)]
    assert np.mean([one.low <= true <= one.high for one in made]) >= AT_LEAST - 0.02


def test_performance_profile_band_covers():
    rng, taus = np.random.default_rng(3), np.array([-1.0, 0.0, 1.0])
    true = np.array([0.8413, 0.5, 0.1587])
    held = []
    for _ in range(600):
        made = profile(rng.normal(size=(5, 6)), taus)
        held.append((made.low <= true) & (true <= made.high))
    assert (np.mean(held, 0) >= AT_LEAST - 0.01).all()
