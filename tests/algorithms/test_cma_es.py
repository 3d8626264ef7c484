"""CMA-ES against the numbers of the package cmaes, and what it makes of ill-scaled problems."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.evolution import cma_es
from sterling.equations.covariance_adaptation import full_rates
from sterling.types import Mistake, Spec

NUMBERS = json.loads((Path(__file__).parent / "cma_es" / "numbers.json").read_text())
ADAPT = jax.jit(cma_es.adapt_search)


@pytest.mark.parametrize("form", ["full", "diagonal"])
def test_cma_es_generations_equal_reference_package(form):
    rows = NUMBERS[form]
    points, size = np.shape(rows[0]["white"])
    search = cma_es.Search.create(size, NUMBERS["sigma"], is_full=form == "full")
    for generation, row in enumerate(rows, 1):
        z = jnp.asarray(row["white"], jnp.float32)
        shift, search = ADAPT(search, z, jnp.int32(points), jnp.int32(generation))
        np.testing.assert_allclose(shift, row["shift"], rtol=2e-4, atol=2e-5)
        for name in ("sigma", "path_sigma", "path_c", "covariance"):
            found = getattr(search, name)
            np.testing.assert_allclose(found, row[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("count", [5, 8])
def test_cma_es_ignores_masked_candidates(count):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(8, 3)).astype(np.float32)
    z[count:] = 77.0
    search = cma_es.Search.create(3, 0.4, is_full=True)
    found = ADAPT(search, jnp.asarray(z), jnp.int32(count), jnp.int32(1))
    wanted = ADAPT(search, jnp.asarray(z[:count]), jnp.int32(count), jnp.int32(1))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", list(NUMBERS["weights"]))
def test_cma_es_recombination_weights_equal_reference_package(sizes):
    size, points = map(int, sizes.split(","))
    found = jax.jit(full_rates, static_argnums=(0, 2))(points, jnp.int32(points), size).weights
    np.testing.assert_allclose(found, NUMBERS["weights"][sizes], rtol=1e-4, atol=1e-6)


def test_cma_es_parent_weights_sum_to_one_and_decrease():
    rates = jax.jit(full_rates, static_argnums=(0, 2))(12, jnp.int32(10), 5)
    weights = np.asarray(rates.weights)
    np.testing.assert_allclose(weights[:5].sum(), 1.0, rtol=1e-5)
    assert (np.diff(weights[:10]) < 0).all()
    assert (weights[5:10] < 0).all()
    assert (weights[10:] == 0).all()


def minimise(is_full, generations=150):
    """The best loss of a turned ellipsoid, whose axes differ a thousandfold."""
    size, points = 6, 12
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(size, size)))[0]
    matrix = jnp.asarray(turn @ np.diag(np.logspace(0, 6, size)) @ turn.T, jnp.float32)

    def step(carry, key):
        mean, search, generation = carry
        z = jax.random.normal(key, (points, size))
        x = mean[None] + search.sigma * search.stretched(z)
        loss = jnp.einsum("ij,jk,ik->i", x, matrix, x)
        count = jnp.int32(points)
        shift, search = cma_es.adapt_search(search, z[jnp.argsort(loss)], count, generation)
        return (mean + shift, search, generation + 1), loss.min()

    start = (jnp.ones(size), cma_es.Search.create(size, 0.5, is_full=is_full), jnp.int32(1))
    keys = jax.random.split(jax.random.key(0), generations)
    return np.asarray(jax.jit(lambda: jax.lax.scan(step, start, keys)[1])())


def test_cma_es_full_covariance_solves_rotated_problem_diagonal_does_not():
    assert minimise(True)[-1] < 1e-4
    assert minimise(False)[-1] > 1.0


def test_cma_es_axes_are_eigenvectors_of_the_covariance():
    rng = np.random.default_rng(2)
    wide = rng.normal(size=(5, 5))
    covariance = jnp.asarray(wide @ wide.T + np.eye(5), jnp.float32)
    start = cma_es.Search.create(5, 1.0, is_full=True)
    start = dataclasses.replace(start, covariance=covariance)
    found = jax.jit(cma_es.decompose)(start)
    root = np.asarray(found.root)
    np.testing.assert_allclose(root @ root, covariance, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(root, root.T, atol=1e-5)
    np.testing.assert_allclose(found.scales**2, np.linalg.eigvalsh(covariance), rtol=1e-4)


def test_cma_es_uses_diagonal_covariance_for_large_networks():
    spec = Spec(spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Discrete(2), 8, 10)
    small = {"width": 3, "depth": 1}  # 4 x 3 + 3 + 3 x 2 + 2 = 23 weights
    full = cma_es.init(jax.random.key(0), spec, cma_es.Config(**small, full_weights=23))
    assert full.search.covariance.shape == (23, 23)
    diagonal = cma_es.init(jax.random.key(0), spec, cma_es.Config(**small, full_weights=22))
    assert diagonal.search.covariance.shape == (23,)


def test_cma_es_refuses_fewer_than_four_envs():
    spec = Spec(spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Discrete(2), 3, 10)
    with pytest.raises(Mistake, match="at least 4 envs"):
        cma_es.init(jax.random.key(0), spec, cma_es.Config())
