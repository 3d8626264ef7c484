"""Soft values and temperatures against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.equations.polyak import polyak
from sterling.equations.soft_values import (
    initial_alpha,
    soft_value,
    soft_value_discrete,
    temperature_loss,
)


def test_soft_value_subtracts_the_weighted_log_probability():
    found = soft_value(jnp.array([1.0, 2.0]), jnp.array([-0.5, 3.0]), 0.2)
    np.testing.assert_allclose(found, [1.1, 1.4], rtol=1e-6)


def test_discrete_soft_value_is_the_expectation_over_actions():
    probability = np.array([0.25, 0.75])
    q = np.array([4.0, 8.0])
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    found = soft_value_discrete(
        jnp.asarray(q, jnp.float32), jnp.log(jnp.asarray(probability, jnp.float32)), 0.5
    )
    np.testing.assert_allclose(found, 7.0 + 0.5 * entropy, rtol=1e-6)


def test_soft_value_ignores_impossible_actions_with_finite_gradients():
    def at(logits):
        log_prob = jax.nn.log_softmax(jnp.where(jnp.array([True, True, False]), logits, -1e9))
        return soft_value_discrete(jnp.array([1.0, 3.0, 1e6]), log_prob, 0.1)

    found, slope = jax.value_and_grad(at)(jnp.zeros(3))
    np.testing.assert_allclose(found, 2.0 + 0.1 * np.log(2.0), rtol=1e-6)
    np.testing.assert_allclose(slope, [-0.5, 0.5, 0.0], atol=1e-6)


def test_soft_value_of_the_best_policy_is_the_log_sum_exp():
    """max over pi of V is alpha log sum exp(Q / alpha), reached by softmax(Q / alpha)."""
    q, alpha = jnp.array([0.3, -1.0, 0.8]), 0.7
    found = soft_value_discrete(q, jax.nn.log_softmax(q / alpha), alpha)
    np.testing.assert_allclose(found, alpha * jax.nn.logsumexp(q / alpha), rtol=1e-5)


def test_temperature_loss_lowers_temperature_above_the_target_entropy():
    entropy = jnp.array([1.0, 3.0])
    loss = temperature_loss(jnp.log(jnp.float32(0.5)), entropy, -1.0)
    np.testing.assert_allclose(loss, [1.0, 2.0], rtol=1e-6)
    slope = jax.grad(lambda x, target: temperature_loss(x, entropy, target).mean())
    assert slope(jnp.zeros(()), -1.0) > 0.0  # descending lowers alpha
    assert slope(jnp.zeros(()), 5.0) < 0.0


def test_polyak_moves_by_its_share():
    slow, fast = {"w": jnp.array([0.0, 2.0])}, {"w": jnp.array([1.0, 0.0])}
    np.testing.assert_allclose(polyak(slow, fast, 0.25)["w"], [0.25, 1.5])
    np.testing.assert_allclose(polyak(slow, fast, 1.0)["w"], fast["w"])


@pytest.mark.parametrize(("alpha", "tuned", "first"), [(0.0, True, 1e-6), (0.0, False, 0.0)])
def test_initial_temperature_is_above_zero_if_tuned(alpha, tuned, first):
    assert float(initial_alpha(alpha, tuned)) == np.float32(first)
    assert float(initial_alpha(0.3, tuned)) == np.float32(0.3)
