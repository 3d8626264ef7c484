"""SimBa v2's network against NumPy, how it begins, and weights that are put back on the sphere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import random_keys
from sterling.nets.mlp import MLP
from sterling.nets.special_layers.hyperspherical_mlp import HypersphericalMLP
from sterling.nets.special_layers.weight_projection import to_unit_length, with_unit_weights

SIZES, ROWS = (3, 8, 4), 5


def made(blocks, heads=1):
    return HypersphericalMLP.create(jax.random.key(0), SIZES, blocks, heads=heads)


def moved(net):
    leaves, form = jax.tree.flatten(net)
    rng = np.random.default_rng(0)
    return jax.tree.unflatten(
        form, [x + jnp.asarray(0.1 * rng.normal(size=x.shape), jnp.float32) for x in leaves]
    )


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_a_block_and_two_heads_are_the_papers_equations():
    net, x = moved(made(1, heads=2)), np.random.default_rng(1).normal(size=(ROWS, 3))
    w = [np.asarray(layer.weight, np.float64) for layer in net.layers]
    first, inside, step, *heads = (np.asarray(each.scale, np.float64) for each in net.scalers)
    y = unit(np.concatenate([x, np.full((ROWS, 1), 3.0)], -1))
    y = unit(first * (y @ w[0]))
    aim = unit((np.maximum(inside * (y @ w[1]), 0.0) + 1e-8) @ w[2])
    y = unit(y + 0.5 * np.sqrt(8.0) * step * (aim - y))  # begins at 1 / 2, as 1 / sqrt(8)
    wanted = [
        (scale * (y @ w[at])) @ w[at + 1] + np.asarray(net.layers[at + 1].bias)
        for scale, at in zip(heads, (3, 5), strict=True)
    ]
    found = net(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, np.concatenate(wanted, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("blocks", [0, 2])
def test_weights_and_features_begin_with_length_1(blocks):
    net = made(blocks)
    shapes = [(4, 8), *[(8, 32), (32, 8)] * blocks, (8, 8), (8, 4)]
    assert [layer.weight.shape for layer in net.layers] == shapes
    for layer in net.layers:
        np.testing.assert_allclose(np.linalg.norm(layer.weight, axis=0), 1.0, rtol=1e-5)
    far = 1e4 * jax.random.normal(jax.random.key(1), (ROWS, 3))
    np.testing.assert_allclose(np.linalg.norm(net.features(far), axis=-1), 1.0, rtol=1e-5)
    assert [layer.bias is None for layer in net.layers] == [True] * (2 * blocks + 2) + [False]


def test_any_ensemble_gets_unit_weights_and_keeps_everything_else():
    """Of every member, into every unit; and a network of another kind gets them too."""
    keys = random_keys.split(jax.random.key(0), "member", 3)
    nets = jax.vmap(lambda key: MLP.uniform(key, (4, 5, 2), layer_norm=True))(keys)
    put = with_unit_weights(nets)
    for old, new in zip(nets.layers, put.layers, strict=True):
        np.testing.assert_allclose(np.linalg.norm(new.weight, axis=1), 1.0, rtol=1e-5)
        ratio = np.asarray(old.weight) / np.asarray(new.weight)  # one number for each unit
        np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=1e-4)
        np.testing.assert_array_equal(old.bias, new.bias)
    np.testing.assert_array_equal(nets.norms[0].scale, put.norms[0].scale)


def test_nothing_has_no_direction_and_a_finite_gradient():
    none = jnp.zeros(3)
    np.testing.assert_array_equal(to_unit_length(none), none)
    assert np.isfinite(np.asarray(jax.grad(lambda x: to_unit_length(x).sum())(none))).all()
