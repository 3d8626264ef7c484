"""KL estimators and their gradients, by enumeration of every choice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import kl_estimates
from sterling.types import Mistake

rng = np.random.default_rng(3)
LOGITS, REFERENCE, STALE = (constant_array(rng.normal(size=5), np.float32) for _ in range(3))
Q = constant_array(np.asarray(REFERENCE) - np.log(np.exp(REFERENCE).sum()))


def kl(logits):
    p = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(p) * (p - Q))


def reverse_kl(logits):
    p = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(Q) * (Q - p))


def mean(kind, logits):
    """The estimator's mean over samples from the policy."""
    p = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(p) * kl_estimates.estimate_kl(p, Q, kind))


def mean_gradient(kind, logits):
    """The mean of its gradient at fixed samples from the policy."""
    chance = jax.lax.stop_gradient(jax.nn.softmax(logits))

    def loss(logits):
        return jnp.sum(chance * kl_estimates.estimate_kl(jax.nn.log_softmax(logits), Q, kind))

    return jax.grad(loss)(logits)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(kind):
    np.testing.assert_allclose(mean(kind, LOGITS), kl(LOGITS), rtol=1e-5)


def test_k2_is_biased_and_near_where_the_policies_are_near():
    assert abs(mean("k2", LOGITS) - kl(LOGITS)) > 0.1
    near = REFERENCE + 0.01 * LOGITS
    np.testing.assert_allclose(mean("k2", near), kl(near), rtol=0.02)


def test_kl_estimator_gradients_as_losses():
    np.testing.assert_allclose(mean_gradient("k1", LOGITS), np.zeros(5), atol=1e-6)
    np.testing.assert_allclose(
        mean_gradient("k2", LOGITS), jax.grad(kl)(LOGITS), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        mean_gradient("k3", LOGITS), jax.grad(reverse_kl)(LOGITS), rtol=1e-4, atol=1e-6
    )
    assert np.abs(jax.grad(kl)(LOGITS) - jax.grad(reverse_kl)(LOGITS)).max() > 0.05


def test_kl_estimator_gradients_as_reward_costs():
    """k1's is the KL's; k3's lacks what it has as a loss."""

    def gradient(kind):
        cost = kl_estimates.estimate_kl(jax.nn.log_softmax(LOGITS), Q, kind)
        constant = jax.nn.softmax(LOGITS) * cost
        return jax.grad(lambda logits: jnp.sum(constant * jax.nn.log_softmax(logits)))(LOGITS)

    forward, backward = jax.grad(kl)(LOGITS), jax.grad(reverse_kl)(LOGITS)
    np.testing.assert_allclose(gradient("k1"), forward, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradient("k3"), forward - backward, rtol=1e-4, atol=1e-6)
    for known in (forward, backward, forward - backward):
        assert np.abs(gradient("k2") - known).max() > 0.01


@pytest.mark.parametrize("kind", ["k1", "k3"])
@pytest.mark.parametrize("stale", [LOGITS, STALE])
def test_ratio_corrected_kl_has_value_and_gradient_of_the_true_kl(kind, stale):
    old = jax.nn.log_softmax(stale)

    def loss(logits):
        p = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(old) * kl_estimates.ratio_corrected_kl(p, Q, p - old, kind))

    value, gradient = jax.value_and_grad(loss)(LOGITS)
    np.testing.assert_allclose(value, kl(LOGITS), rtol=1e-5)
    np.testing.assert_allclose(gradient, jax.grad(kl)(LOGITS), rtol=1e-4, atol=1e-6)


def test_k3_is_never_negative_and_always_finite():
    away = jnp.asarray([-1e4, -30.0, -1.0, -1e-4, 0.0, 1e-4, 1.0, 30.0, 1e4])
    found = kl_estimates.estimate_kl(away, jnp.zeros(9), "k3")
    assert np.all(np.isfinite(found))
    assert float(found[4]) == 0.0
    assert np.all(np.asarray(found)[2:] >= 0.0)
    np.testing.assert_allclose(found[3], 5e-9, rtol=1e-2)  # l^2 / 2, not a rounding error


def test_the_reference_passes_no_gradient():
    for kind in kl_estimates.KL_ESTIMATORS:
        slope = jax.grad(lambda q, k=kind: kl_estimates.estimate_kl(LOGITS, q, k).sum())(REFERENCE)
        np.testing.assert_array_equal(slope, np.zeros(5))


def test_policy_entropy_matches_hand_values_with_masked_choices():
    logits = jnp.asarray([[0.0, 0.0, -jnp.inf, 0.0], [0.0, -jnp.inf, -jnp.inf, -jnp.inf]])
    np.testing.assert_allclose(kl_estimates.entropy(logits), [np.log(3.0), 0.0], atol=1e-6)
    slope = jax.grad(lambda x: kl_estimates.entropy(x).sum())(logits)
    assert np.all(np.isfinite(slope))


def test_kl_estimates_refuse_unknown_estimators():
    with pytest.raises(Mistake, match="Unknown KL estimator 'k4'; did you mean k"):
        kl_estimates.estimate_kl(LOGITS, REFERENCE, "k4")
