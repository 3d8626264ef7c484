"""Orthogonal weights."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from sterling.nets.mlp import orthogonal_matrix


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_orthogonal_matrix_has_orthonormal_rows_or_columns(shape):
    made = np.asarray(orthogonal_matrix(jax.random.normal(jax.random.key(0), shape)))
    product = made.T @ made if shape[0] >= shape[1] else made @ made.T
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-6)


def test_orthogonal_matrix_under_vmap_runs_no_batched_decomposition():
    """Batches of them block each other for good (see ``_qr``); each is the same as alone."""
    normal = jax.random.normal(jax.random.key(0), (2, 3, 40, 8))
    many = jax.vmap(jax.vmap(orthogonal_matrix))
    found = list(decompositions(jax.make_jaxpr(many)(normal).jaxpr))
    assert found
    assert all(shape == (40, 8) for shape in found)
    made = many(normal)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(made[i, j], orthogonal_matrix(normal[i, j]))


def decompositions(jaxpr):
    """Shapes of what QR's primitives are given, in a program and all inside of it."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("qr", "geqrf", "householder_product"):
            yield eqn.invars[0].aval.shape
        for part in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from decompositions(inner)
