"""Distances of intervals by hand, and what makes them quasimetrics."""

import jax.numpy as jnp
import numpy as np
import pytest

from sterling.equations.quasimetrics import interval_quasimetric


@pytest.mark.parametrize(
    ("ends", "length"),
    [
        ([1.0, 3.0, 7.0], 4.0),  # [0, 1], [1, 3] and [6, 7]
        ([2.0, 4.0, 7.0], 5.0),  # [0, 2] and [1, 4] overlap
        ([5.0, 2.0, 6.0], 5.0),  # [1, 2] lies within [0, 5], [6, 6] is empty
        ([8.0, 2.0, 7.0], 8.0),  # both others lie within [0, 8]
        ([-1.0, 0.5, 5.0], 0.0),  # all lie behind
    ],
)
def test_a_component_is_the_length_of_a_union(ends, length):
    begins = jnp.asarray([0.0, 1.0, 6.0])
    for share in (0.0, 1.0):  # of one component the mean is the maximum
        found = interval_quasimetric(begins, jnp.asarray(ends), jnp.asarray(share), 3)
        np.testing.assert_allclose(found, length)


def test_components_are_averaged_and_their_longest_taken():
    x, y = jnp.zeros(4), jnp.asarray([1.0, 3.0, 5.0, -2.0])  # lengths 3 and 5
    found = interval_quasimetric(x, y, jnp.asarray(0.25), 2)
    np.testing.assert_allclose(found, 0.25 * 4.0 + 0.75 * 5.0)


def test_ways_round_are_no_shorter_and_directions_differ():
    x, y, z = jnp.asarray(np.random.default_rng(0).normal(size=(3, 500, 6)), jnp.float32)

    def distance(x, y):
        return np.asarray(interval_quasimetric(x, y, jnp.asarray(0.4), 3))

    assert (distance(x, z) <= distance(x, y) + distance(y, z) + 1e-5).all()
    np.testing.assert_array_equal(distance(x, x), 0.0)
    assert np.abs(distance(x, y) - distance(y, x)).mean() > 0.1
