"""The losses of regression on a log: by hand, by their minimisers, and by their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import expectile

from sterling.equations.regression_losses import advantage_weight, expectile_loss

TARGETS = np.array([-1.0, 0.0, 0.5, 2.0])


def test_expectile_loss_by_hand():
    # 0.9 * 2^2 above, (1 - 0.9) * 3^2 below
    found = expectile_loss(jnp.asarray([2.0, -3.0, 0.0]), 0.9)
    np.testing.assert_allclose(found, [3.6, 0.9, 0.0], rtol=1e-6)


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.8, 0.99])
def test_expectile_loss_minimiser_is_the_expectile(tau):
    grid = np.linspace(-1.0, 2.0, 30_001)
    error = jnp.asarray(TARGETS[None] - grid[:, None], jnp.float32)
    best = grid[int(np.argmin(np.asarray(expectile_loss(error, tau), np.float64).mean(1)))]
    assert abs(best - expectile(TARGETS, alpha=tau)) < 1e-3


def test_advantage_weights_match_hand_values_and_their_cap():
    found = advantage_weight(jnp.asarray([0.0, 0.5, -0.5, 3.0]), 2.0, 100.0)
    np.testing.assert_allclose(found, [1.0, np.e, 1.0 / np.e, 100.0], rtol=1e-6)


def test_advantage_weights_pass_no_gradient():
    slope = jax.grad(lambda a: advantage_weight(a, 2.0, 100.0).sum())(jnp.asarray([0.0, 0.5, 3.0]))
    np.testing.assert_array_equal(slope, np.zeros(3))
