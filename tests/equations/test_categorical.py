"""Categorical values against rlax, and against what a projection must keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from scipy.special import softmax

from sterling.equations import categorical_values


def random_distributions(rows=6, count=7):
    rng = np.random.default_rng(0)
    values = np.sort(rng.normal(size=(rows, count)) * 3.0, 1)
    chances = softmax(rng.normal(size=(rows, count)), 1)
    return (jnp.asarray(x, jnp.float32) for x in (values, chances))


def test_categorical_projection_equals_rlax():
    """Of values that have other distances, some beyond both ends of the support."""
    support = categorical_values.make_support(-2.0, 3.0, 11)
    values, chances = random_distributions()
    assert bool((values < -2.0).any() and (values > 3.0).any())
    found = categorical_values.project_onto_support(values, chances, support)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        expected = [
            rlax.categorical_l2_project(z, p, support) for z, p in zip(values, chances, strict=True)
        ]
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-6)


def test_categorical_projection_keeps_the_mean_within_the_support():
    support = categorical_values.make_support(-20.0, 30.0, 9)
    values, chances = random_distributions()
    found = categorical_values.project_onto_support(values, chances, support)
    np.testing.assert_allclose(found.sum(-1), np.ones(6), rtol=1e-6)
    np.testing.assert_allclose(found @ support, (values * chances).sum(-1), rtol=1e-4, atol=1e-5)


def test_categorical_support_matches_the_paper():
    """Its z_i for N = 51 on [-10, 10] are 0.4 apart."""
    support = np.asarray(categorical_values.make_support(-10.0, 10.0, 51))
    assert (support[0], support[25], support[50]) == pytest.approx((-10.0, 0.0, 10.0), abs=1e-5)
    np.testing.assert_allclose(np.diff(support), np.full(50, 0.4), rtol=1e-4)


def test_categorical_expectation_cross_entropy_and_entropy_match_hand_values():
    support = categorical_values.make_support(0.0, 2.0, 3)
    logits = jnp.log(jnp.asarray([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]))
    np.testing.assert_allclose(
        categorical_values.expected_value(logits, support), [1.3, 0.5], rtol=1e-6
    )
    sure = jnp.asarray([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(
        categorical_values.cross_entropy(sure, logits), -np.log([0.5, 0.3]), rtol=1e-6
    )
    np.testing.assert_array_equal(categorical_values.entropy(sure), np.zeros(2))
    half = jnp.asarray([[0.5, 0.5, 0.0]])
    np.testing.assert_allclose(categorical_values.entropy(half), [np.log(2.0)], rtol=1e-6)


def test_accelerators_and_processors_compute_the_same_projection():
    """Accelerators add over all pairs of values and atoms, processors to two neighbours each."""
    _, chances = random_distributions()
    rng = np.random.default_rng(2)
    place = jnp.asarray(rng.uniform(0.0, 10.0, chances.shape), jnp.float32)
    place = place.at[0].set(0.0).at[1].set(10.0).at[2].set(4.0)  # the ends, and all on one atom
    support = categorical_values.make_support(-2.0, 3.0, 11)
    found = categorical_values._sum_of_neighbours(place, chances, support)
    expected = categorical_values._sum_over_pairs(place, chances, support)
    np.testing.assert_allclose(found, expected, atol=1e-6)
