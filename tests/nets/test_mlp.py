"""How perceptrons begin."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from sterling.nets.mlp import MLP

SIZES = (40, 300, 200, 7)


def test_mlp_glorot_weights_are_distributed_as_jax_initialisers():
    """In scale and shape: the same uniform distribution, another order of random numbers."""
    made = MLP.glorot(jax.random.key(0), SIZES, "gelu")
    for layer, shape in zip(made.layers, itertools.pairwise(SIZES), strict=True):
        other = jax.nn.initializers.glorot_uniform()(jax.random.key(1), shape)
        assert layer.weight.shape == shape
        np.testing.assert_allclose(jnp.abs(layer.weight).max(), jnp.abs(other).max(), rtol=0.02)
        np.testing.assert_allclose(layer.weight.std(), other.std(), rtol=0.05)
        assert not layer.bias.any()
    first, second = (layer.weight.reshape(-1)[:1000] for layer in made.layers[:2])
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


def test_mlp_applies_gelu_between_layers():
    made = MLP.glorot(jax.random.key(0), (3, 4, 2), "gelu")
    x = jnp.asarray([[0.5, -2.0, 1.0]])
    inner = jax.nn.gelu(x @ made.layers[0].weight)
    np.testing.assert_allclose(made(x), inner @ made.layers[1].weight, rtol=1e-6)
