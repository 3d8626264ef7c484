"""The networks of SimBa and BRO against NumPy, and how they begin."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling.nets.special_layers.residual_mlp import BroNet, ResidualMLP

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


def test_residual_mlp_blocks_equal_the_simba_paper():
    net, x = made(2), np.random.default_rng(1).normal(size=(ROWS, 3))
    y = linear(x, net.layers[0])
    y = y + linear(np.maximum(linear(normed(y, net.norms[0]), net.layers[1]), 0), net.layers[2])
    y = y + linear(np.maximum(linear(normed(y, net.norms[1]), net.layers[3]), 0), net.layers[4])
    wanted = linear(normed(y, net.norms[2]), net.layers[5])
    np.testing.assert_allclose(net(jnp.asarray(x, jnp.float32)), wanted, rtol=1e-4, atol=1e-5)


def test_residual_mlp_hidden_size_is_four_times_the_width():
    shapes = [layer.weight.shape for layer in made(1).layers]
    assert shapes == [(3, 8), (8, 32), (32, 8), (8, 2)]
    assert [layer.weight.shape for layer in made(0).layers] == [(3, 8), (8, 2)]


def test_residual_mlp_initial_weights_are_orthogonal_and_he():
    net = ResidualMLP.create(jax.random.key(0), (6, 128, 4), 2)
    first, last = np.asarray(net.layers[0].weight), np.asarray(net.layers[-1].weight)
    np.testing.assert_allclose(first @ first.T, np.eye(6), atol=1e-5)
    np.testing.assert_allclose(last.T @ last, np.eye(4), atol=1e-5)
    for layer in net.layers[1:-1]:
        weight = np.asarray(layer.weight)
        np.testing.assert_allclose(weight.var(), 2.0 / weight.shape[0], rtol=0.03)
        assert not np.any(np.asarray(layer.bias))


def test_a_bro_net_is_the_papers_figure():
    heads, rng = ((2, 2**0.5), (3, 0.5)), np.random.default_rng(1)
    net = BroNet.create(jax.random.key(0), (3, 8), heads, 2)
    leaves, form = jax.tree.flatten(net)
    moved = [x + jnp.asarray(0.1 * rng.normal(size=x.shape), jnp.float32) for x in leaves]
    net, x = jax.tree.unflatten(form, moved), rng.normal(size=(ROWS, 3))

    def step(y, index):
        return normed(linear(y, net.layers[index]), net.norms[index])

    y = np.maximum(step(x, 0), 0)
    y = y + step(np.maximum(step(y, 1), 0), 2)
    y = y + step(np.maximum(step(y, 3), 0), 4)
    wanted = linear(y, net.layers[5])
    assert wanted.shape == (ROWS, 5)
    np.testing.assert_allclose(net(jnp.asarray(x, jnp.float32)), wanted, rtol=1e-4, atol=1e-5)


def test_a_bro_net_begins_orthogonal_with_the_gain_of_each_head():
    heads = ((2, 2**0.5), (3, 0.5))
    net = BroNet.create(jax.random.key(0), (3, 8), heads, 1, bias=False)
    first, *inside, last = (np.asarray(layer.weight) for layer in net.layers)
    np.testing.assert_allclose(first @ first.T, 2.0 * np.eye(3), atol=1e-5)
    for weight in inside:
        np.testing.assert_allclose(weight.T @ weight, 2.0 * np.eye(8), atol=1e-5)
    np.testing.assert_allclose(last[:, :2].T @ last[:, :2], 2.0 * np.eye(2), atol=1e-5)
    np.testing.assert_allclose(last[:, 2:].T @ last[:, 2:], 0.25 * np.eye(3), atol=1e-5)
    assert net.layers[-1].bias is None
