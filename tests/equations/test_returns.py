"""Advantages and policy losses: against numbers by hand, against rlax, and across joints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

from sterling.equations.masked_average import masked_mean, standardise
from sterling.equations.policy_losses import clipped_surrogate, clipped_value_loss, kl_estimate
from sterling.equations.returns import continues, gae, lambda_returns

ADVANTAGES = jax.jit(gae)
RLAX = jax.jit(rlax.truncated_generalized_advantage_estimation)
LAMBDA_RETURNS = jax.jit(lambda_returns)
RLAX_Q_LAMBDA = jax.jit(rlax.q_lambda)


def advantages(reward, discount, values, last, mask, *, lam, gamma):
    """GAE of rows whose successors' values are the next rows' values."""
    return ADVANTAGES(
        jnp.asarray(reward, jnp.float32),
        gamma * jnp.asarray(discount, jnp.float32),
        jnp.asarray(values[:-1], jnp.float32),
        jnp.asarray(values[1:], jnp.float32),
        continues(jnp.asarray(last), jnp.asarray(mask)),
        lam=jnp.float32(lam),
    )


def test_gae_of_two_steps_matches_hand_values():
    # delta_1 = 2 + 0.9 * 3 - 1 = 3.7, delta_0 = 1 + 0.9 * 1 - 0.5 = 1.4
    # A_1 = 3.7, A_0 = 1.4 + 0.9 * 0.8 * 3.7 = 4.064
    found = advantages(
        [1.0, 2.0], [1.0, 1.0], [0.5, 1.0, 3.0], [False] * 2, [True] * 2, lam=0.8, gamma=0.9
    )
    np.testing.assert_allclose(found, [4.064, 3.7], rtol=1e-6)


def test_gae_does_not_bootstrap_at_termination():
    found = advantages(
        [1.0, 5.0], [1.0, 0.0], [0.5, 1.0, 100.0], [False, True], [True] * 2, lam=1.0, gamma=0.5
    )
    np.testing.assert_allclose(found, [1.0 + 0.5 * 5.0 - 0.5, 4.0], rtol=1e-6)


def test_gae_bootstraps_at_truncation_and_does_not_leak_across_episodes():
    """Row 1 is cut, row 2 is the reset (masked), rows 3 and 4 are the next episode."""
    reward, discount = [1.0, 1.0, 0.0, 7.0, 9.0], [1.0] * 5
    last, mask = [False, True, False, False, False], [True, True, False, True, True]
    values = [1.0, 2.0, 4.0, 10.0, 20.0, 40.0]
    found = advantages(reward, discount, values, last, mask, lam=1.0, gamma=0.5)
    cut = 1.0 + 0.5 * 4.0 - 2.0  # bootstraps from its true successor, whose value is 4
    first = (1.0 + 0.5 * 2.0 - 1.0) + 0.5 * cut
    final = 9.0 + 0.5 * 40.0 - 20.0
    third = (7.0 + 0.5 * 20.0 - 10.0) + 0.5 * final
    np.testing.assert_allclose(np.asarray(found)[[0, 1, 3, 4]], [first, cut, third, final])
    values[4:], reward[3:] = [-1e3, 1e3], [1e3, -1e3]  # another second episode, the same first
    again = advantages(reward, discount, values, last, mask, lam=1.0, gamma=0.5)
    np.testing.assert_array_equal(found[:2], again[:2])


def test_continues_is_true_after_masked_start_and_false_at_a_last_row():
    last, mask = jnp.array([False, False, True]), jnp.array([False, True, True])
    np.testing.assert_array_equal(continues(last, mask), [True, True, False])


def test_gae_trace_ends_at_a_masked_row():
    """Row 2 is where a world crashed: it ends row 1, although row 1 is not marked as a last one."""
    last, mask = jnp.array([False, False, True, False, False]), jnp.array([True] * 5)
    np.testing.assert_array_equal(continues(last, mask), [True, True, False, True, False])
    mask = mask.at[2].set(False)
    np.testing.assert_array_equal(continues(last, mask), [True, False, False, True, False])
    found = advantages(
        *([1.0, 1.0, 50.0], [1.0] * 3, [0.0, 0.0, 6.0, 0.0], [False] * 3, [True, True, False]),
        lam=1.0,
        gamma=0.5,
    )
    np.testing.assert_allclose(found[:2], [1.0 + 0.5 * 4.0, 1.0 + 0.5 * 6.0])


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_gae_equals_rlax(seed, lam, gamma):
    rng = np.random.default_rng(seed)
    reward, values = rng.normal(size=12), rng.normal(size=13)
    ends = rng.random(12) < 0.2
    found = advantages(reward, ~ends, values, ends, [True] * 12, lam=lam, gamma=gamma)
    expected = RLAX(
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(gamma * ~ends, jnp.float32),
        jnp.float32(lam),
        jnp.asarray(values, jnp.float32),
    )
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


def test_gae_with_lambda_one_is_the_discounted_return_less_the_value():
    rng = np.random.default_rng(0)
    reward, values = rng.normal(size=6), rng.normal(size=7)
    found = advantages(reward, [1.0] * 6, values, [False] * 6, [True] * 6, lam=1.0, gamma=0.9)
    total = sum(0.9**k * reward[k] for k in range(6)) + 0.9**6 * values[6]
    np.testing.assert_allclose(found[0], total - values[0], rtol=1e-5)


def test_gae_treats_envs_as_independent_columns():
    rng = np.random.default_rng(1)
    parts = [jnp.asarray(rng.normal(size=(5, 3)), jnp.float32) for _ in range(4)]
    trace = jnp.asarray(rng.random((5, 3)) < 0.7)
    together = gae(*parts, trace, lam=0.9)
    apart = [gae(*(p[:, i] for p in parts), trace[:, i], lam=0.9) for i in range(3)]
    np.testing.assert_allclose(together, jnp.stack(apart, 1), rtol=1e-6)


def test_clipped_surrogate_by_hand():
    ratio, advantage = jnp.array([1.5, 0.5, 1.5, 0.5]), jnp.array([1.0, 1.0, -1.0, -1.0])
    found = clipped_surrogate(ratio, advantage, 0.2)
    np.testing.assert_allclose(found, [-1.2, -0.5, 1.5, 0.8], rtol=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.sampled_from([0.1, 0.2, 0.5]))
def test_clipped_surrogate_equals_rlax(seed, clip):
    rng = np.random.default_rng(seed)
    ratio = jnp.asarray(rng.uniform(0.1, 3.0, 16), jnp.float32)
    advantage = jnp.asarray(rng.normal(size=16), jnp.float32)
    expected = rlax.clipped_surrogate_pg_loss(ratio, advantage, clip, use_stop_gradient=False)
    np.testing.assert_allclose(
        clipped_surrogate(ratio, advantage, clip).mean(), expected, rtol=1e-5
    )


def test_clipped_value_takes_the_larger_error():
    value, old, target = jnp.array([2.0, 0.1]), jnp.array([0.0, 0.0]), jnp.array([2.0, 1.0])
    found = clipped_value_loss(
        value, old, target, 0.5
    )  # limited to 0.5: errors 1.5; and 0.9 unlimited
    np.testing.assert_allclose(found, [0.5 * 1.5**2, 0.5 * 0.9**2], rtol=1e-6)


def test_clipped_value_loss_clips_a_decreased_value_around_the_old_one():
    value, old, target = jnp.array([-1.0]), jnp.array([1.0]), jnp.array([-1.0])
    found = clipped_value_loss(value, old, target, 0.5)  # limited to 0.5: an error of 1.5
    np.testing.assert_allclose(found, [0.5 * 1.5**2], rtol=1e-6)


def test_policy_kl_estimate_is_exact_on_average():
    old, new = np.array([0.2, 0.3, 0.5]), np.array([0.4, 0.4, 0.2])
    found = kl_estimate(jnp.asarray(np.log(new / old), jnp.float32))
    assert (np.asarray(found) >= 0.0).all()
    np.testing.assert_allclose((old * found).sum(), (old * np.log(old / new)).sum(), rtol=1e-5)


def test_masked_mean_and_standardise_ignore_masked_rows():
    x, mask = jnp.array([1.0, 3.0, 1e9]), jnp.array([True, True, False])
    assert masked_mean(x, mask) == 2.0
    assert masked_mean(x, jnp.zeros(3, bool)) == 0.0
    np.testing.assert_allclose(standardise(x, mask)[:2], [-1.0, 1.0], rtol=1e-5)


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_gae_with_lambda_zero_is_the_td_error(lam):
    found = advantages(
        [1.0, 1.0], [1.0, 1.0], [0.0, 2.0, 3.0], [False] * 2, [True] * 2, lam=lam, gamma=1.0
    )
    assert found[1] == 2.0
    assert found[0] == 3.0 + lam * 2.0


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_lambda_returns_of_the_best_values_equal_rlax_q_lambda(seed, lam, gamma):
    rng = np.random.default_rng(seed)
    reward, q = rng.normal(size=12).astype(np.float32), rng.normal(size=(13, 3)).astype(np.float32)
    action, ends = rng.integers(3, size=12), rng.random(12) < 0.2
    discount = (gamma * ~ends).astype(np.float32)
    trace = continues(jnp.asarray(ends), jnp.ones(12, bool))
    found = LAMBDA_RETURNS(reward, discount, q[1:].max(-1), trace, lam=jnp.float32(lam))
    errors = RLAX_Q_LAMBDA(q[:-1], action, reward, discount, q[1:], jnp.full(12, lam, jnp.float32))
    taken = np.take_along_axis(q[:-1], action[:, None], -1)[:, 0]
    np.testing.assert_allclose(found - taken, errors, rtol=2e-4, atol=1e-5)


def test_lambda_returns_by_hand():
    # G_1 = 2 + 0.5 * 8 = 6, G_0 = 1 + 0.5 * (0.75 * 4 + 0.25 * 6) = 3.25
    found = LAMBDA_RETURNS(
        jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([4.0, 8.0]),
        jnp.array([True, False]), lam=jnp.float32(0.25),
    )  # fmt: skip
    np.testing.assert_allclose(found, [3.25, 6.0])


@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_lambda_returns_bootstrap_at_a_cut_and_leak_nothing(lam):
    """Row 1 is cut, row 2 is the reset (masked), rows 3 and 4 are the next episode."""
    last, mask = jnp.array([0, 1, 0, 0, 0], bool), jnp.array([1, 1, 0, 1, 1], bool)
    trace, half = continues(last, mask), jnp.full(5, 0.5)

    def returns(reward, next_value):
        rows = (jnp.asarray(reward), half, jnp.asarray(next_value), trace)
        return np.asarray(LAMBDA_RETURNS(*rows, lam=jnp.float32(lam)))

    found = returns([1.0, 1.0, 0.0, 7.0, 9.0], [2.0, 4.0, 10.0, 20.0, 40.0])
    cut, final = 1.0 + 0.5 * 4.0, 9.0 + 0.5 * 40.0
    first = 1.0 + 0.5 * ((1.0 - lam) * 2.0 + lam * cut)
    third = 7.0 + 0.5 * ((1.0 - lam) * 20.0 + lam * final)
    np.testing.assert_allclose(found[[0, 1, 3, 4]], [first, cut, third, final], rtol=1e-6)
    again = returns([1.0, 1.0, -50.0, 1e3, -1e3], [2.0, 4.0, -1e3, 1e3, 50.0])
    np.testing.assert_array_equal(found[:2], again[:2])


def test_lambda_returns_less_the_value_are_advantages():
    rng = np.random.default_rng(3)
    reward, values = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in (8, 9))
    trace, discount = jnp.asarray(rng.random(8) < 0.7), jnp.full(8, 0.9)
    found = LAMBDA_RETURNS(reward, discount, values[1:], trace, lam=jnp.float32(0.8))
    # where a trace ends, both bootstrap from the successor's value, so they may differ no more
    expected = ADVANTAGES(reward, discount, values[:-1], values[1:], trace, lam=jnp.float32(0.8))
    np.testing.assert_allclose(found - values[:-1], expected, rtol=1e-4, atol=1e-5)
