"""The losses of dual values against numbers by hand, and their minimisers against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.equations.dual_values import dual_loss, gumbel_loss, gumbel_scale

TARGETS = np.array([-1.0, 0.0, 0.5, 2.0])
GRID = np.linspace(-4.0, 6.0, 20_001)


def minimiser(loss):
    """Where the mean loss over TARGETS is smallest, on a grid."""
    error = jnp.asarray(TARGETS[None] - GRID[:, None], jnp.float32)
    return GRID[int(np.argmin(np.asarray(loss(error), np.float64).mean(1)))]


def test_gumbel_loss_by_hand():
    found = gumbel_loss(jnp.array([0.0, 1.0, -2.0]), 2.0, 7.0)
    expected = [0.0, np.exp(0.5) - 1.5, np.exp(-1.0) + 1.0 - 1.0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gumbel_loss_continues_along_its_tangent_past_the_clip():
    slope = jax.grad(lambda u: gumbel_loss(u, 1.0, 3.0))
    for error in (3.0, 5.0, 1000.0):
        np.testing.assert_allclose(slope(error), np.exp(3.0) - 1.0, rtol=1e-5)
        expected = np.exp(3.0) * (1.0 + error - 3.0) - error - 1.0
        np.testing.assert_allclose(gumbel_loss(jnp.asarray(error), 1.0, 3.0), expected, rtol=1e-5)
    np.testing.assert_allclose(slope(2.0), np.exp(2.0) - 1.0, rtol=1e-5)
    assert np.isfinite(gumbel_loss(jnp.asarray(1e6), 1.0, 7.0))


@pytest.mark.parametrize("beta", [0.3, 1.0, 5.0])
def test_gumbel_minimiser_is_the_soft_maximum(beta):
    expected = beta * np.log(np.mean(np.exp(TARGETS / beta)))
    assert abs(minimiser(lambda u: gumbel_loss(u, beta, 20.0)) - expected) < 0.01


def test_gumbel_limits_are_maximum_and_mean():
    assert abs(minimiser(lambda u: gumbel_loss(u, 0.02, 10.0)) - TARGETS.max()) < 0.05
    assert abs(minimiser(lambda u: gumbel_loss(u, 1000.0, 10.0)) - TARGETS.mean()) < 0.02


def test_gumbel_scale_bounds_the_slope_and_ignores_masked_rows():
    error, mask = jnp.array([0.5, 2.0, 900.0]), jnp.array([True, True, False])
    np.testing.assert_allclose(gumbel_scale(error, mask, 0.5, 7.0), np.exp(-4.0), rtol=1e-6)
    np.testing.assert_allclose(gumbel_scale(error, mask, 0.1, 7.0), np.exp(-7.0), rtol=1e-6)
    np.testing.assert_allclose(gumbel_scale(-error, mask, 0.5, 7.0), 1.0)  # never enlarges

    def total(error):
        return jnp.sum(gumbel_loss(error, 0.1, 7.0) * gumbel_scale(error, mask, 0.1, 7.0))

    assert np.abs(jax.grad(total)(error)).max() <= 1.0 / 0.1 + 1e-4


def test_dual_loss_by_hand():
    error = jnp.array([2.0, -3.0])
    found = dual_loss(error, 0.75, "total_variation")
    np.testing.assert_allclose(found, [0.75 * 2.0 - 0.5, 0.75], rtol=1e-6)
    found = dual_loss(error, 0.75, "chi_square")
    np.testing.assert_allclose(found, [0.75 * (2.0 + 1.0) - 0.5, 0.75], rtol=1e-6)
    with pytest.raises(ValueError, match="chi_square"):
        dual_loss(error, 0.75, "kl")


@pytest.mark.parametrize(("weight", "expected"), [(0.6, 0.0), (0.7, 0.5), (0.9, 2.0)])
def test_dual_loss_total_variation_minimiser_is_a_quantile(weight, expected):
    """P(Q > v) = (1 - w) / w: 2/3, 3/7 and 1/9 of four targets are above -1..0, 0.5 and 2."""
    assert abs(minimiser(lambda u: dual_loss(u, weight, "total_variation")) - expected) < 0.01


def test_dual_loss_chi_square_minimiser_solves_its_equation():
    for weight in (0.4, 0.6, 0.8):
        v = minimiser(lambda u, w=weight: dual_loss(u, w, "chi_square"))
        above = np.maximum(TARGETS - v, 0.0)
        low = np.mean((1.0 + above / 2.0) * (TARGETS - v > 0.002))  # a kink: v may be a target
        high = np.mean((1.0 + above / 2.0) * (TARGETS - v > -0.002))
        assert low - 0.01 <= (1.0 - weight) / weight <= high + 0.01


@pytest.mark.parametrize("divergence", ["total_variation", "chi_square"])
def test_dual_loss_minimiser_approaches_the_maximum(divergence):
    values = [minimiser(lambda u, w=w: dual_loss(u, w, divergence)) for w in (0.6, 0.8, 0.99)]
    assert values[0] <= values[1] <= values[2]
    assert abs(values[2] - TARGETS.max()) < 0.01


def test_gumbel_scale_passes_no_gradient():
    mask = jnp.array([True, True])
    slope = jax.grad(lambda error: gumbel_scale(error, mask, 0.5, 7.0))(jnp.array([0.5, 2.0]))
    np.testing.assert_array_equal(slope, np.zeros(2))
