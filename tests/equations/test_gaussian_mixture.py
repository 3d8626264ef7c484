"""Mixtures of Gaussians, against densities of SciPy and clusters that are known."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from sterling.equations.gaussian_mixture import Mixture, best_mixture, fit_mixture

KEY = jax.random.wrap_key_data(np.array([0, 3], np.uint32))


def clusters():
    """400 rows around (-0.5, 0.2) and 200 around (0.6, -0.4), then rows that do not count."""
    random = np.random.default_rng(0)
    one = random.normal((-0.5, 0.2), (0.1, 0.05), (400, 2))
    other = random.normal((0.6, -0.4), (0.05, 0.1), (200, 2))
    rows = np.concatenate([one, other, np.full((50, 2), 9.0)])
    return jnp.asarray(rows, jnp.float32), jnp.arange(650) < 600


def test_densities_of_a_mixture_are_those_of_scipy():
    means, variances = np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([[0.5, 2.0], [1.0, 0.1]])
    mixture = Mixture(jnp.array([0.25, 0.75]), jnp.asarray(means, jnp.float32),
                      jnp.asarray(variances, jnp.float32))  # fmt: skip
    x = np.array([[0.3, -0.2], [2.0, 0.0], [-1.0, 1.0]], np.float32)
    expected = [
        np.log(weight) + stats.norm.logpdf(x, mean, np.sqrt(variance)).sum(-1)
        for weight, mean, variance in zip((0.25, 0.75), means, variances, strict=True)
    ]
    np.testing.assert_allclose(
        mixture.log_densities(jnp.asarray(x)), np.stack(expected, -1), rtol=1e-5
    )


def test_a_fitted_mixture_finds_clusters_and_leaves_masked_rows_out():
    mixture = jax.jit(best_mixture, static_argnums=(3, 4))(*clusters(), KEY, 2, 2)
    order = np.argsort(mixture.means[:, 0])
    np.testing.assert_allclose(mixture.weights[order], [2 / 3, 1 / 3], atol=0.02)
    np.testing.assert_allclose(mixture.means[order], [[-0.5, 0.2], [0.6, -0.4]], atol=0.02)
    deviations = np.sqrt(mixture.variances[order])
    np.testing.assert_allclose(deviations, [[0.1, 0.05], [0.05, 0.1]], atol=0.015)


def test_akaike_prefers_two_components_for_two_clusters_to_one():
    x, mask = clusters()
    fit = jax.jit(lambda used: fit_mixture(x, mask, KEY, used))
    two = fit(jnp.array([True, True, False]))
    mixture, criterion = two
    assert criterion < fit(jnp.array([True, False, False]))[1]
    assert mixture.weights[2] == 0.0
    # 9 free numbers: a weight, four means, four variances
    density = jax.nn.logsumexp(mixture.log_densities(x)[:, :2], axis=-1)
    np.testing.assert_allclose(criterion, 18.0 - 2.0 * density[mask].sum(), rtol=1e-4)
