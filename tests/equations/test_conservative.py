"""The conservative gap and the members' alikeness against numbers worked out otherwise."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling.equations.conservative_q import (
    calibrated_q,
    conservative_gap,
    conservative_gap_discrete,
    log_integral_exp,
    multiplier_loss,
)
from sterling.equations.ensemble_diversity import gradient_similarity


def test_log_integral_exp_is_exact_for_a_constant():
    """int_{-1}^{1} e^2 da = 2 e^2, from a uniform density of 1/2."""
    found = log_integral_exp(jnp.full((5, 1), 2.0), jnp.full((5, 1), np.log(0.5)))
    np.testing.assert_allclose(found, [2.0 + np.log(2.0)], rtol=1e-6)


def test_log_integral_exp_agrees_for_two_proposal_distributions():
    """int exp(-2 a^2 + a) da over the line is sqrt(pi / 2) exp(1/8); both proposals are normal."""
    rng = np.random.default_rng(0)
    near, wide = rng.normal(0.3, 0.6, 200_000), rng.normal(-0.2, 1.5, 200_000)
    action = np.concatenate([near, wide])

    def log_normal(x, mean, std):
        return -0.5 * ((x - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))

    log_p = np.concatenate([log_normal(near, 0.3, 0.6), log_normal(wide, -0.2, 1.5)])
    q = -2.0 * action**2 + action
    found = log_integral_exp(
        jnp.asarray(q[:, None], jnp.float32), jnp.asarray(log_p[:, None], jnp.float32)
    )
    np.testing.assert_allclose(found, 0.5 * np.log(np.pi / 2.0) + 0.125, atol=5e-3)


def test_conservative_gap_subtracts_q_of_the_logged_action():
    q, log_p = np.array([[0.0], [1.0], [3.0]]), np.log(np.array([[0.5], [0.25], [2.0]]))
    expected = np.log(np.mean([1.0 / 0.5, np.e / 0.25, np.e**3 / 2.0])) - 1.5
    found = conservative_gap(jnp.asarray(q), jnp.asarray(log_p), jnp.array([1.5]))
    np.testing.assert_allclose(found, [expected], rtol=1e-5)


def test_discrete_conservative_gap_gradient_is_the_softmax():
    q = jnp.array([0.5, -1.0, 2.0])
    gap = conservative_gap_discrete(q, q[0])
    np.testing.assert_allclose(gap, np.log(np.exp([0.5, -1.0, 2.0]).sum()) - 0.5, rtol=1e-6)
    slope = jax.grad(lambda q: conservative_gap_discrete(q, q[0]))(q)
    share = np.exp([0.5, -1.0, 2.0]) / np.exp([0.5, -1.0, 2.0]).sum()
    np.testing.assert_allclose(slope, share - np.array([1.0, 0.0, 0.0]), rtol=1e-5)


def test_calibrated_q_stops_gradient_below_the_reference_only():
    q, reference = jnp.array([0.2, 3.0, -7.0]), jnp.array([1.0, 1.0, -jnp.inf])
    np.testing.assert_allclose(calibrated_q(q, reference), [1.0, 3.0, -7.0])
    slope = jax.grad(lambda q: calibrated_q(q, reference).sum())(q)
    np.testing.assert_array_equal(slope, [0.0, 1.0, 1.0])


def test_cql_multiplier_loss_grows_it_while_the_gap_exceeds_the_target():
    slope = jax.grad(multiplier_loss)
    np.testing.assert_allclose(slope(jnp.log(2.0), jnp.float32(5.0), 3.0), -4.0, rtol=1e-6)
    np.testing.assert_allclose(slope(jnp.log(2.0), jnp.float32(1.0), 3.0), 4.0, rtol=1e-6)


def test_ensemble_gradient_similarity_is_the_mean_cosine_over_pairs():
    slope = np.random.default_rng(0).normal(size=(4, 3, 2))
    expected = np.zeros(3)
    for row in range(3):
        for i in range(4):
            for j in range(4):
                if i != j:
                    one, other = slope[i, row], slope[j, row]
                    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
                    expected[row] += cosine / 3.0
    found = gradient_similarity(jnp.asarray(slope, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_ensemble_gradient_similarity_of_equal_opposite_and_zero_gradients():
    same = jnp.broadcast_to(jnp.array([3.0, 4.0])[None, None], (5, 1, 2))
    np.testing.assert_allclose(gradient_similarity(same), [5.0], rtol=1e-5)
    opposite = jnp.array([[[1.0, 0.0]], [[-2.0, 0.0]]])
    np.testing.assert_allclose(gradient_similarity(opposite), [-2.0], rtol=1e-5)
    slope = jax.grad(lambda x: gradient_similarity(x).sum())(jnp.zeros((2, 1, 2)))
    assert jnp.isfinite(slope).all()  # a dead network has no direction
