"""Coefficients within bounds: their numbers by hand, and how they begin."""

import jax.numpy as jnp
import numpy as np

from sterling.equations.bounded_coefficients import coefficient, raw_coefficient


def test_the_bounds_are_e_to_the_minus_10_and_7_5_and_the_middle_is_between():
    found = coefficient(jnp.array([-40.0, 0.0, 40.0]))
    np.testing.assert_allclose(found, np.exp([-10.0, -1.25, 7.5]), rtol=1e-5)


def test_a_coefficient_begins_at_its_initial_value():
    for value in (0.01, 0.25, 1.0, 30.0):
        np.testing.assert_allclose(coefficient(raw_coefficient(value)), value, rtol=1e-5)


def test_initial_values_out_of_bounds_can_still_learn():
    for value, edge in ((1e-9, -10.0), (1e9, 7.5)):
        raw = raw_coefficient(value)
        assert np.isfinite(raw)
        np.testing.assert_allclose(jnp.log(coefficient(raw)), edge, atol=0.02)
