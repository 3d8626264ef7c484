"""Products of Gaussian factors and their divergence, against densities on a grid."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from sterling.equations.gaussian_posterior import GaussianPosterior

GRID = np.linspace(-12.0, 12.0, 200_001)
MEAN, VARIANCE = np.array([[0.5], [2.0], [-30.0]]), np.array([[0.25], [4.0], [0.1]])


def test_product_of_factors_has_the_mean_and_variance_of_the_multiplied_densities():
    """By hand: precision 1 + 4 + 1/4 = 5.25, mean (0.5 * 4 + 2 / 4) / 5.25; the third is masked."""
    found = GaussianPosterior.product(
        jnp.asarray(MEAN, jnp.float32), jnp.asarray(VARIANCE, jnp.float32),
        jnp.asarray([True, True, False]),
    )  # fmt: skip
    np.testing.assert_allclose(found.mean, [2.5 / 5.25], rtol=1e-6)
    np.testing.assert_allclose(found.variance, [1 / 5.25], rtol=1e-6)
    density = norm.pdf(GRID) * norm.pdf(GRID, 0.5, 0.5) * norm.pdf(GRID, 2.0, 2.0)
    density /= density.sum()
    np.testing.assert_allclose(found.mean[0], (density * GRID).sum(), rtol=1e-5)
    spread = (density * (GRID - 2.5 / 5.25) ** 2).sum()
    np.testing.assert_allclose(found.variance[0], spread, rtol=1e-5)


def test_product_of_no_factors_is_the_prior_and_has_finite_gradients():
    def mean(x):
        return GaussianPosterior.product(x, jnp.zeros((3, 2)), jnp.zeros(3, bool)).mean.sum()

    value, grad = jax.value_and_grad(mean)(jnp.full((3, 2), jnp.inf))
    assert value == 0.0
    np.testing.assert_array_equal(grad, 0.0)
    assert GaussianPosterior.prior(2).divergence() == 0.0


def test_divergence_from_the_prior_is_the_integral_of_the_log_ratio():
    belief = GaussianPosterior(jnp.array([0.7, 0.0]), jnp.array([0.3, 2.0]))
    expected = 0.0
    for mean, variance in ((0.7, 0.3), (0.0, 2.0)):
        own = norm(mean, np.sqrt(variance))
        step = GRID[1] - GRID[0]
        expected += step * (own.pdf(GRID) * (own.logpdf(GRID) - norm.logpdf(GRID))).sum()
    np.testing.assert_allclose(belief.divergence(), expected, rtol=1e-5)


def test_samples_have_the_mean_and_the_variance():
    belief = GaussianPosterior(jnp.full(40_000, 0.7), jnp.full(40_000, 0.3))
    drawn = belief.sample(jax.random.wrap_key_data(np.array([0, 5], np.uint32)))
    np.testing.assert_allclose(drawn.mean(), 0.7, atol=0.01)
    np.testing.assert_allclose(drawn.var(), 0.3, atol=0.01)
