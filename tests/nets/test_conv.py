"""Convolutions: two ways to compute them, one answer."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.nets.convolution import (
    DRQ_LAYERS,
    GRID_LAYERS,
    NATURE_LAYERS,
    Torso,
    convolve_by_products,
    convolve_xla,
)


@pytest.mark.parametrize(
    ("outputs", "kernel", "stride"), [*NATURE_LAYERS, *GRID_LAYERS, DRQ_LAYERS[0]]
)
@pytest.mark.parametrize("sides", [(17, 14), pytest.param((8, 11), marks=pytest.mark.slow)])
def test_convolution_by_patch_products_equals_xla(outputs, kernel, stride, sides):
    """Values and gradients, also where the last rows are too few for another patch."""
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (3, *sides, 5))
    weight = jax.random.normal(keys[1], (kernel, kernel, 5, outputs))
    wanted, back = jax.vjp(jax.jit(lambda x, w: convolve_xla(x, w, stride)), x, weight)
    by_products = jax.jit(lambda x, w: convolve_by_products(x, w, stride))
    got, back_too = jax.vjp(by_products, x, weight)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    pull = jax.random.normal(keys[2], wanted.shape)
    for mine, theirs in zip(back_too(pull), back(pull), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "first", "channels"),
    [
        ((4, 12, 12), True, 4),
        ((12, 12, 4), False, 4),
        ((8, 8, 20), False, 20),
        ((20, 8, 8), True, 20),
        ((3, 9, 12), True, 3),
        ((9, 12, 3), False, 3),
        ((5, 4, 26), True, 5),
        ((7, 7, 7), False, 7),
        ((6, 9, 6), False, 6),
    ],
)
def test_convolution_finds_the_channel_axis(shape, first, channels):
    """Two equal sides tell which axis is not one, otherwise the shorter end."""
    torso = eqx.filter_eval_shape(Torso.create, jax.random.key(0), shape, False)
    assert torso.channels_first == first
    assert torso.layers[0].weight.shape[2] == channels
    seen = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    assert eqx.filter_eval_shape(lambda torso, seen: torso(seen), torso, seen).shape == (
        2,
        torso.size,
    )
