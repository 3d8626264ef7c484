"""Means over the rows that count, and what is made of them, by hand."""

import jax.numpy as jnp
import numpy as np

from sterling.equations.masked_average import masked_mean, standardise
from sterling.equations.policy_losses import clipped_value_loss


def test_standardise_uses_mean_and_deviation_of_unmasked_rows():
    """1, 5 and 9 have mean 5 and deviation sqrt(32 / 3); the others are not read."""
    x, mask = jnp.array([1.0, 1e6, 5.0, 9.0, -1e6]), jnp.array([1, 0, 1, 1, 0], bool)
    found = np.asarray(standardise(x, mask))[[0, 2, 3]]
    np.testing.assert_allclose(found, np.array([-4.0, 0.0, 4.0]) / np.sqrt(32.0 / 3.0), rtol=1e-5)
    assert masked_mean(x, mask) == 5.0


def test_standardise_of_equal_rows_is_zero():
    found = standardise(jnp.full(4, 3.0), jnp.array([True, True, True, False]))
    np.testing.assert_array_equal(found[:3], np.zeros(3))


def test_clipped_value_loss_takes_the_larger_of_both_errors():
    """Values moved beyond +-0.5 of the old ones: past the target, and towards it, either way."""
    value, old = jnp.array([2.0, 2.0, -2.0, -2.0, 0.4]), jnp.zeros(5)
    target = jnp.array([0.4, 3.0, -0.4, -3.0, 1.0])
    found = clipped_value_loss(value, old, target, 0.5)
    errors = [2.0 - 0.4, 3.0 - 0.5, 2.0 - 0.4, 3.0 - 0.5, 1.0 - 0.4]
    np.testing.assert_allclose(found, 0.5 * np.square(errors), rtol=1e-6)
