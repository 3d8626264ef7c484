"""SimBa's network against NumPy, and how it begins."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling.nets.special_layers.residual_mlp import ResidualMLP

SIZES, ROWS = (3, 8, 2), 5


def made(blocks):
    net = ResidualMLP.create(jax.random.key(0), SIZES, blocks)
    leaves, form = jax.tree.flatten(net)
    rng = np.random.default_rng(0)
    moved = [x + jnp.asarray(0.1 * rng.normal(size=x.shape), jnp.float32) for x in leaves]
    return jax.tree.unflatten(form, moved)


def normed(x, norm):
    centred = x - x.mean(-1, keepdims=True)
    unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return unit * np.asarray(norm.scale, np.float64) + np.asarray(norm.shift, np.float64)


def linear(x, layer):
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


def test_two_blocks_are_the_papers_equations():
    net, x = made(2), np.random.default_rng(1).normal(size=(ROWS, 3))
    y = linear(x, net.layers[0])
    y = y + linear(np.maximum(linear(normed(y, net.norms[0]), net.layers[1]), 0), net.layers[2])
    y = y + linear(np.maximum(linear(normed(y, net.norms[1]), net.layers[3]), 0), net.layers[4])
    wanted = linear(normed(y, net.norms[2]), net.layers[5])
    np.testing.assert_allclose(net(jnp.asarray(x, jnp.float32)), wanted, rtol=1e-4, atol=1e-5)


def test_sizes_are_four_times_as_wide_inside():
    shapes = [layer.weight.shape for layer in made(1).layers]
    assert shapes == [(3, 8), (8, 32), (32, 8), (8, 2)]
    assert [layer.weight.shape for layer in made(0).layers] == [(3, 8), (8, 2)]


def test_ends_begin_orthogonal_and_blocks_with_hes_variance():
    net = ResidualMLP.create(jax.random.key(0), (6, 128, 4), 2)
    first, last = np.asarray(net.layers[0].weight), np.asarray(net.layers[-1].weight)
    np.testing.assert_allclose(first @ first.T, np.eye(6), atol=1e-5)
    np.testing.assert_allclose(last.T @ last, np.eye(4), atol=1e-5)
    for layer in net.layers[1:-1]:
        weight = np.asarray(layer.weight)
        np.testing.assert_allclose(weight.var(), 2.0 / weight.shape[0], rtol=0.03)
        assert not np.any(np.asarray(layer.bias))
