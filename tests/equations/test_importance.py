"""Importance sampling on two episodes that a person can work out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import importance_sampling as eq

# Two episodes of two steps. Single-step ratios: (2, 1/2) and (1/2, 3); so w = (2, 1), (1/2, 3/2).
LOG_PI = constant_array(np.log([[0.8, 0.2], [0.2, 0.6]]))
LOG_MU = constant_array(np.log([[0.4, 0.4], [0.4, 0.2]]))
REWARD = constant_array([[1.0, 4.0], [2.0, 8.0]])
GAMMA = 0.5
RATIO = constant_array([[2.0, 1.0], [0.5, 1.5]])
Q = constant_array([[1.0, 2.0], [3.0, 4.0]])
V = constant_array([[2.0, 1.0], [1.0, 2.0]])


def test_importance_ratios_accumulate_by_product():
    np.testing.assert_allclose(eq.cumulative_ratio(LOG_PI, LOG_MU), RATIO, rtol=1e-6)


def test_importance_ratios_are_clipped_at_the_bound():
    found = eq.cumulative_ratio(LOG_PI, LOG_MU, 1.25)
    np.testing.assert_allclose(found, [[1.25, 1.0], [0.5, 1.25]], rtol=1e-6)


def test_importance_ratio_is_zero_after_an_action_the_policy_never_takes():
    log_pi = jnp.array([[0.0, -jnp.inf, 0.0]])
    np.testing.assert_array_equal(eq.cumulative_ratio(log_pi, jnp.zeros((1, 3))), [[1.0, 0.0, 0.0]])


def test_relative_importance_ratios_stay_finite_over_long_episodes():
    """Two hundred steps at one nat each, where float32 ends at 88."""
    near = eq.cumulative_ratio(LOG_PI, LOG_MU)
    relative = eq.relative_ratio(LOG_PI, LOG_MU)
    far = eq.relative_ratio(jnp.tile(jnp.array([[1.0], [0.9]]), (1, 200)), jnp.zeros((2, 200)))
    assert jnp.isfinite(far).all()
    np.testing.assert_allclose(far[:, -1], [1.0, np.exp(-20.0)], rtol=1e-4)
    for form in (eq.weighted_trajectory_is, eq.weighted_per_decision_is):
        found, expected = (eq.ratio_of_sums(form(w, REWARD, GAMMA)) for w in (relative, near))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    found, expected = (
        eq.ratio_of_sums(eq.weighted_doubly_robust(w, REWARD, Q, V, GAMMA))
        for w in (relative, near)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_relative_importance_ratios_are_clipped_before_normalisation():
    found = eq.relative_ratio(LOG_PI, LOG_MU, 1.25)  # of [[2, 1], [0.5, 1.5]], cut at 1.25
    np.testing.assert_allclose(found, [[1.0, 0.8], [0.4, 1.0]], rtol=1e-6)


def test_weighted_importance_sampling_ignores_columns_without_weight():
    terms, weights = jnp.array([[2.0, 5.0], [4.0, 7.0]]), jnp.array([[1.0, 0.0], [2.0, 0.0]])
    np.testing.assert_allclose(eq.ratio_of_sums((terms, weights)), 6.0 / 3.0, rtol=1e-6)
    # ratio 2 of column 0: 2 + 2 (2 - 2) / 3 and 2 + 2 (4 - 4) / 3; column 1 divides by nothing
    kept = jnp.array([[1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(
        eq.episode_contributions((terms * kept, weights)), [2.0, 2.0], rtol=1e-6
    )
    light = jnp.array([[0.1], [0.3]]), jnp.array([[0.25], [0.25]])  # ratio 0.4 / 0.5
    np.testing.assert_allclose(eq.episode_contributions(light), [0.4, 1.2], rtol=1e-6)


def test_relative_importance_ratio_is_zero_where_no_episode_has_weight():
    log_pi = jnp.full((2, 2), -jnp.inf)
    np.testing.assert_array_equal(eq.relative_ratio(log_pi, jnp.zeros((2, 2))), jnp.zeros((2, 2)))


@pytest.mark.parametrize(
    ("made", "by_hand"),
    [
        # returns 1 + 4/2 = 3 and 2 + 8/2 = 6; last ratios 1 and 3/2
        (lambda: eq.trajectory_is(RATIO, REWARD, GAMMA), (1 * 3 + 1.5 * 6) / 2),
        (lambda: eq.weighted_trajectory_is(RATIO, REWARD, GAMMA), (1 * 3 + 1.5 * 6) / 2.5),
        # first rewards 2*1, .5*2; second halved 1*2, 1.5*4
        (lambda: eq.per_decision_is(RATIO, REWARD, GAMMA), (2 + 2 + 1 + 6) / 2),
        (lambda: eq.weighted_per_decision_is(RATIO, REWARD, GAMMA), (2 + 1) / 2.5 + (2 + 6) / 2.5),
        # w_t (r - Q): 0, (4-2)/2 = 1; .5 * -1, 1.5 * (8-4)/2 = 3; w_{t-1} V: 2, 2*1/2; 1, .5*2/2
        (
            lambda: eq.doubly_robust(RATIO, REWARD, Q, V, GAMMA),
            (0 + 1 - 0.5 + 3 + 2 + 1 + 1 + 0.5) / 2,
        ),
        (
            lambda: eq.weighted_doubly_robust(RATIO, REWARD, Q, V, GAMMA),
            -0.5 / 2.5 + (1 + 3) / 2.5 + (2 + 1) / 2 + (1 + 0.5) / 2.5,
        ),
    ],
    ids=["is", "wis", "pdis", "wpdis", "dr", "wdr"],
)
def test_importance_sampling_estimators_match_hand_values(made, by_hand):
    np.testing.assert_allclose(eq.ratio_of_sums(made()), by_hand, rtol=1e-6)


def test_importance_sampling_of_the_same_policy_is_the_mean_return():
    ones = jnp.ones((2, 2))
    for estimator in (
        *(eq.trajectory_is, eq.weighted_trajectory_is),
        *(eq.per_decision_is, eq.weighted_per_decision_is),
    ):
        np.testing.assert_allclose(eq.ratio_of_sums(estimator(ones, REWARD, GAMMA)), 4.5, rtol=1e-6)


def test_doubly_robust_with_exact_model_has_no_variance():
    """Deterministic world, deterministic judged policy: DR is V of the start for every episode
    whose actions it would have taken, and for the others too."""
    reward = jnp.array([[1.0, 4.0], [0.0, 4.0]])  # the second episode did something else first
    ratio = jnp.array([[2.0, 4.0], [0.0, 0.0]])
    q = jnp.array([[3.0, 4.0], [2.0, 4.0]])
    v = jnp.array([[3.0, 4.0], [3.0, 4.0]])
    terms, _ = eq.doubly_robust(ratio, reward, q, v, GAMMA)
    np.testing.assert_allclose(terms[:, 0], [3.0, 3.0], rtol=1e-6)


def test_importance_sampling_counts_equal_a_bootstrap_resample():
    sums = eq.weighted_per_decision_is(RATIO, REWARD, GAMMA)
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x[:1]]), sums)
    counted = eq.ratio_of_sums(sums, jnp.array([2.0, 1.0]))
    np.testing.assert_allclose(counted, eq.ratio_of_sums(twice), rtol=1e-6)


def test_importance_sampling_episode_contributions_average_to_the_estimate():
    for estimator in (eq.trajectory_is, eq.weighted_trajectory_is, eq.weighted_per_decision_is):
        sums = estimator(RATIO, REWARD, GAMMA)
        np.testing.assert_allclose(
            eq.episode_contributions(sums).mean(), eq.ratio_of_sums(sums), rtol=1e-6
        )
    np.testing.assert_allclose(
        eq.episode_contributions(eq.trajectory_is(RATIO, REWARD, GAMMA)),
        [3.0, 9.0],
        rtol=1e-6,
    )


def test_effective_sample_size_counts_equal_weights_and_one_heavy_one():
    found = eq.effective_sample_size(jnp.array([[1.0, 0.0, 0.0], [1.0, 5.0, 0.0], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(found, [3.0, 1.0, 0.0], rtol=1e-6)


def test_effective_sample_size_of_huge_and_tiny_weights():
    """Whose squares float32 does not hold."""
    weights = jnp.array([[1e30, 1e-30], [1e30, 1e-30], [0.0, 0.0]])
    np.testing.assert_allclose(eq.effective_sample_size(weights), 2.0, rtol=1e-6)
