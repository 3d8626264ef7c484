"""Noisy layers: the distribution of their outputs, and whose noise is whose."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling.nets.special_layers.noisy_linear import NoisyMLP

SIZES = (3, 4, 2)


def network(sigma=0.5, **fields):
    return NoisyMLP.create(jax.random.key(0), SIZES, sigma, **fields)


def rows(count=5):
    return jax.random.normal(jax.random.key(1), (count, 3))


def test_noisy_mlp_without_a_key_uses_mean_weights():
    net, x = network(), rows()
    np.testing.assert_array_equal(net(x), net.mean(x))
    silent = network(sigma=0.0)
    np.testing.assert_allclose(silent(x, jax.random.key(2)), silent.mean(x), atol=1e-6)


def test_noisy_mlp_deviation_begins_at_sigma_over_root_inputs():
    for layer, inputs in zip(network(0.4).deviation.layers, SIZES[:-1], strict=True):
        for leaf in (layer.weight, layer.bias):
            np.testing.assert_allclose(leaf, np.full(leaf.shape, 0.4 / inputs**0.5), rtol=1e-6)


def test_noisy_mlp_noise_is_shared_by_rows_or_independent():
    net, same = network(), jnp.ones((4, 3))
    together = net(same, jax.random.key(2))
    np.testing.assert_allclose(together, together[:1].repeat(4, 0), rtol=1e-6)
    apart = np.asarray(net(same, jax.random.key(2), False))
    assert len(np.unique(apart[:, 0])) == 4
    other = net(same, jax.random.key(3))
    assert not np.allclose(together, other)


def test_noisy_mlp_output_variance_matches_the_paper():
    """E f(e)^2 = E|e| = sqrt(2 / pi): of a weight's noise its square, 2 / pi, and of a bias's
    itself."""
    net = NoisyMLP.create(jax.random.key(0), (3, 2), 0.7)
    x = jnp.asarray([[1.0, -2.0, 0.5]])
    found = jax.vmap(lambda key: net(x, key)[0])(jax.random.split(jax.random.key(4), 40_000))
    share = 0.7**2 / 3
    expected = share * ((2 / np.pi) * float(jnp.sum(x**2)) + (2 / np.pi) ** 0.5)
    np.testing.assert_allclose(found.var(0), [expected] * 2, rtol=0.05)
    np.testing.assert_allclose(found.mean(0), net.mean(x)[0], atol=0.03)


def test_noisy_mlp_hidden_layers_may_use_layer_norm():
    net, x = network(layer_norm=True), rows()
    assert len(net.mean.norms) == 1
    silent = network(0.0, layer_norm=True)
    np.testing.assert_allclose(silent(x, jax.random.key(2)), silent.mean(x), atol=1e-6)
