"""Quantile losses against rlax, and the quantiles that minimise them."""

import jax
import jax.numpy as jnp
import numpy as np
import rlax

from sterling.equations.quantile_losses import quantile_huber, quantile_middles


def test_quantile_huber_loss_equals_rlax():
    """rlax sums over the quantiles of one row; here it is their mean."""
    rng = np.random.default_rng(0)
    quantiles, targets = (jnp.asarray(rng.normal(size=(6, n)) * 2.0, jnp.float32) for n in (5, 7))
    shares = quantile_middles(5)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        expected = [
            rlax.quantile_regression_loss(q, shares, y, 0.7)
            for q, y in zip(quantiles, targets, strict=True)
        ]
    found = quantile_huber(quantiles, targets, jnp.broadcast_to(shares, (6, 5)), 0.7)
    np.testing.assert_allclose(found * 5.0, expected, rtol=1e-5)


def test_quantile_huber_loss_is_minimal_at_the_quantiles():
    """Nearly without Huber's parabola, the minimum is at the empirical quantiles."""
    targets = jnp.linspace(-1.0, 1.0, 1001)
    shares = quantile_middles(4)

    def loss(quantiles):
        return quantile_huber(quantiles, targets, shares, 1e-3) / 1e-3

    expected = jnp.asarray([-0.75, -0.25, 0.25, 0.75])  # of a uniform distribution on [-1, 1]
    np.testing.assert_allclose(jax.grad(loss)(expected), jnp.zeros(4), atol=5e-3)
    assert (jnp.abs(jax.grad(loss)(expected + 0.2)) > 0.01).all()


def test_quantile_huber_loss_passes_no_gradient_to_targets():
    slope = jax.grad(lambda y: quantile_huber(jnp.zeros(2), y, quantile_middles(2)))
    np.testing.assert_array_equal(slope(jnp.ones(3)), jnp.zeros(3))
