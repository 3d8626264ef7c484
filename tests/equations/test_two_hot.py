"""Symlog, bins and ranges of values against rlax, NumPy and hand values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from sterling.equations.categorical_values import make_support, project_onto_support
from sterling.equations.symlog import SYMLOG, symexp, symlog
from sterling.equations.two_hot import Bins
from sterling.equations.value_range import Range

NUMBERS = np.array([-2e5, -40.0, -1.0, -1e-6, 0.0, 0.3, 7.5, 2e5], np.float32)


def dreamer_bins():
    return Bins(symexp(jnp.asarray(np.linspace(-20.0, 20.0, 255), jnp.float32)))


def test_symlog_and_symexp_equal_rlax():
    x = jnp.asarray(NUMBERS)
    np.testing.assert_allclose(symlog(x), rlax.signed_logp1(x), rtol=1e-6)
    small = x / 2e4
    np.testing.assert_allclose(symexp(small), rlax.signed_expm1(small), rtol=1e-6)
    np.testing.assert_allclose(symexp(symlog(x)), x, rtol=1e-5)
    assert float(symlog(jnp.asarray(np.e - 1.0))) == pytest.approx(1.0)


def test_two_hot_of_equal_bins_equals_rlax_and_the_projection():
    """Numbers between two bins, on one, and beyond both ends."""
    x = jnp.asarray([-9.0, -2.0, -1.9, 0.2, 0.5, 2.99, 3.0, 4.0])
    bins = Bins(make_support(-2.0, 3.0, 11))
    found = bins.target(x)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        np.testing.assert_allclose(found, rlax.transform_to_2hot(x, -2.0, 3.0, 11), atol=1e-4)
    projected = project_onto_support(x[:, None], jnp.ones((8, 1)), bins.support)
    np.testing.assert_allclose(found, projected, atol=2e-6)


def test_two_hot_of_unequal_bins_matches_the_equation_and_keeps_the_mean():
    """Bins -4, -1, 0, 2, 10: 4 is a quarter of the way from 2 to 10."""
    bins = Bins(jnp.asarray([-4.0, -1.0, 0.0, 2.0, 10.0]))
    expected = [[0, 0, 0, 0.75, 0.25], [0.5, 0.5, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]
    np.testing.assert_allclose(bins.target(jnp.asarray([4.0, -2.5, -1.0, 99.0])), expected)
    wide, x = dreamer_bins(), jnp.asarray(NUMBERS)
    logits = jnp.log(wide.target(x))
    np.testing.assert_allclose(wide.mean(logits), x, rtol=1e-4, atol=1e-6)


def test_equal_probabilities_of_huge_bins_have_exactly_the_mean_zero():
    """DreamerV3's first values are 0, though its outermost bins are 4.85e8."""
    bins = dreamer_bins()
    assert float(bins.support[-1]) == pytest.approx(4.85e8, rel=1e-3)
    np.testing.assert_array_equal(bins.mean(jnp.zeros((3, 255))), np.zeros(3))


def test_squashed_bins_equal_rlax_and_their_loss_is_cross_entropy():
    """TD-MPC2's: two-hot of symlog(x) among 101 equal bins."""
    bins, x = Bins(make_support(-10.0, 10.0, 101), SYMLOG), jnp.asarray([-300.0, 0.02, 15.0])
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        expected = rlax.transform_to_2hot(rlax.signed_logp1(x), -10.0, 10.0, 101)
    found = bins.target(x)
    np.testing.assert_allclose(found, expected, atol=1e-4)  # rlax rounds more
    np.testing.assert_allclose(bins.mean(jnp.log(found + 1e-30)), x, rtol=1e-4)
    np.testing.assert_allclose(
        bins.loss(jnp.zeros((3, 101)), x), np.full(3, np.log(101)), rtol=1e-6
    )
    slope = jax.grad(lambda y: bins.loss(jnp.arange(101.0)[None], y).sum())(x[:1])
    np.testing.assert_array_equal(slope, [0.0])


def test_value_range_equals_numpy_percentiles_of_valid_rows():
    """Its average moves by the rate; the scale is at least 1; nothing valid changes nothing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 9)).astype(np.float32) * 30.0
    mask = rng.random((7, 9)) < 0.7
    low, high = np.percentile(x[mask], [5, 95])
    once = Range.create().update(jnp.asarray(x), jnp.asarray(mask), 1.0)
    np.testing.assert_allclose(once.scale(), high - low, rtol=1e-5)
    moved = Range(jnp.asarray(10.0)).update(jnp.asarray(x), jnp.asarray(mask), 0.01)
    np.testing.assert_allclose(moved.scale(), 0.99 * 10.0 + 0.01 * (high - low), rtol=1e-6)
    same = once.update(jnp.full_like(x, jnp.nan), jnp.zeros((7, 9), bool), 0.5)
    assert float(same.width) == float(once.width)
    assert float(Range(jnp.asarray(0.2)).scale()) == 1.0
