"""Convolutions: two ways to compute them, one answer."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from sterling.nets.conv import NATURE, SMALL, built_in, by_products


@pytest.mark.parametrize(("outputs", "kernel", "stride"), [*NATURE, *SMALL])
@pytest.mark.parametrize("sides", [(17, 14), (8, 11)])
def test_products_of_patches_are_convolutions(outputs, kernel, stride, sides):
    """Values and gradients, also where the last rows are too few for another patch."""
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (3, *sides, 5))
    weight = jax.random.normal(keys[1], (kernel, kernel, 5, outputs))
    wanted, back = jax.vjp(lambda x, w: built_in(x, w, stride), x, weight)
    got, back_too = jax.vjp(lambda x, w: by_products(x, w, stride), x, weight)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    pull = jax.random.normal(keys[2], wanted.shape)
    for mine, theirs in zip(back_too(pull), back(pull), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-3)
