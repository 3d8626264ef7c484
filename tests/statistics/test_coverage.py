"""How often the default intervals hold what they should, simulated.

Small forms of ``benchmarks/statistics``; a share of 1,500 has a standard error of 0.006.
"""

import numpy as np
import pytest

from sterling.statistics import estimate, improve, profile
from sterling.statistics.mean import skew_t, t

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


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["normal", "log-normal", "ceiling"])
def test_mean_of_one_task(kind, n):
    scores, true = drawn(kind, np.random.default_rng(n), (n, 20_000))
    low, high = skew_t(scores, 0.95)
    assert ((low <= true) & (true <= high)).mean() >= AT_LEAST


@pytest.mark.parametrize("n", [9, 17, 25, 40, 70, 150])
def test_mean_between_the_sizes_that_were_calibrated(n):
    scores, true = drawn("log-normal", np.random.default_rng(n), (n, 5_000))
    low, high = skew_t(scores, 0.95)
    assert ((low <= true) & (true <= high)).mean() >= AT_LEAST


def test_it_tends_to_students():
    normal = np.random.default_rng(0).normal(size=(1000, 50))
    ours, students = (np.subtract(*made(normal, 0.95)[::-1]) for made in (skew_t, t))
    np.testing.assert_allclose(ours, students)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rate", ["0.5", "0.7", "0.9", "0.99"])
def test_success_rate(rate, n):
    scores, true = drawn(rate, np.random.default_rng(0), (1_000, n))
    made = [estimate(row) for row in scores]
    assert {one.method for one in made} == {"exact"}
    assert np.mean([one.low <= true <= one.high for one in made]) >= AT_LEAST


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["normal", "log-normal", "0.7"])
@pytest.mark.parametrize("what", ["mean", "iqm"])
def test_over_tasks(what, kind, n):
    rng = np.random.default_rng(1)
    true = drawn(kind, rng, (1,))[1]
    if what == "iqm":
        many, _ = drawn(kind, rng, (400_000,))
        true = estimate(many, "iqm", interval="none").value
        if kind == "0.7":
            return  # of successes over one rate the IQM jumps; its mean is the statistic
    made = [estimate(drawn(kind, rng, (n, 8))[0], what, draws=300) for _ in range(400)]
    share = np.mean([one.low <= true <= one.high for one in made])
    assert share >= AT_LEAST - 2 * np.sqrt(0.95 * 0.05 / 400)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("shift", "true"), [(0.0, 0.5), (1.0, 0.7602), (3.0, 0.9831)])
def test_probability_of_improvement(n, shift, true):
    rng = np.random.default_rng(2)
    made = [improve(rng.normal(shift, size=n), rng.normal(size=n)) for _ in range(300)]
    assert np.mean([one.low <= true <= one.high for one in made]) >= AT_LEAST - 0.02


def test_profile_band():
    rng, taus = np.random.default_rng(3), np.array([-1.0, 0.0, 1.0])
    true = np.array([0.8413, 0.5, 0.1587])
    held = []
    for _ in range(600):
        made = profile(rng.normal(size=(5, 6)), taus)
        held.append((made.low <= true) & (true <= made.high))
    assert (np.mean(held, 0) >= AT_LEAST - 0.01).all()
