"""Losses of discriminators, against optax and against slopes that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sterling.equations.discriminator import discriminator_loss, gradient_penalty

KEY = jax.random.wrap_key_data(np.array([0, 3], np.uint32))


def test_the_discriminator_loss_is_binary_cross_entropy_of_both_sides():
    own, expert = jnp.array([-1.0, 2.0, 9.0]), jnp.array([0.5, -3.0])
    masks = jnp.array([True, True, False]), jnp.array([True, True])
    loss, right = discriminator_loss(own, expert, *masks)
    cross = optax.sigmoid_binary_cross_entropy
    expected = cross(own[:2], jnp.zeros(2)).mean() + cross(expert, jnp.ones(2)).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert right == 0.5  # one of two on either side


@pytest.mark.parametrize(("slope", "expected"), [(0.0, 25.0), (1.0, 16.0)])
def test_the_gradient_penalty_of_a_linear_logit_is_that_of_its_weights(slope, expected):
    weights = jnp.array([3.0, -4.0])
    rows = jnp.arange(6.0).reshape(3, 2)
    mask = jnp.array([True, False, True])
    found = gradient_penalty(lambda x: x @ weights, rows, -rows, mask, KEY, slope=slope)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_gradient_penalty_is_taken_between_own_and_expert_rows():
    own, expert = jnp.full((400, 1), 1.0), jnp.full((400, 1), 3.0)
    counts = jnp.ones(400, bool)  # of x^2 / 2 the slope is x, uniform between 1 and 3
    found = gradient_penalty(lambda x: 0.5 * jnp.sum(x**2), own, expert, counts, KEY)
    np.testing.assert_allclose(found, 13.0 / 3.0, rtol=0.1)
