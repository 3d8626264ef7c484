"""Value equations against numbers that others published, and against rlax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from sterling.equations import value_losses

# rlax 4c5d25b2, multistep_test.py
REWARD = np.array([[1, 0, -1, 0, 1], [0.5, 0.8, -0.7, 0, 2.1]], np.float32)
DISCOUNT = np.array([[0.5, 0.9, 1, 0.5, 0.8], [0.9, 0.5, 0.3, 0.8, 0.7]], np.float32)
NEXT_VALUE = np.array([[3, 1, 5, -5, 3], [-1.7, 1.2, 2.3, 2.2, 2.7]], np.float32)
THREE_STEP = np.array(
    [[2.8, -3.15, 0.7, 1.7, 3.4], [1.2155, 0.714, 0.2576, 3.192, 3.99]], np.float32
)


def targets(steps):
    """n-step targets of every row of the trajectories above; the tail has shorter windows."""
    time = np.arange(5)[:, None] + np.arange(steps)[None]
    there, time = time < 5, np.minimum(time, 4)
    follows = jnp.broadcast_to(jnp.asarray(there)[None], (2, 5, steps))
    total, decay, count = value_losses.n_step_return(
        jnp.asarray(REWARD[:, time]), jnp.asarray(DISCOUNT[:, time]), follows
    )
    final = jnp.arange(5)[None] + count - 1
    return total + decay * jnp.take_along_axis(jnp.asarray(NEXT_VALUE), final, 1), count


def test_n_step_returns_of_three_steps_equal_published_values():
    found, count = targets(3)
    np.testing.assert_allclose(found, THREE_STEP, rtol=1e-5)
    np.testing.assert_array_equal(count, [[3, 3, 3, 2, 1]] * 2)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_n_step_returns_equal_rlax(steps):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        rows = zip(REWARD, DISCOUNT, NEXT_VALUE, strict=True)
        expected = [rlax.n_step_bootstrapped_returns(*row, steps) for row in rows]
    np.testing.assert_allclose(targets(steps)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("counts", [True, False])
def test_n_step_return_of_a_single_row_compiles_without_a_product(counts):
    """A product over rows that always count would be a constant, which XLA computes slowly while it
    compiles, and warns of."""
    parts = jnp.array([[2.0]]), jnp.array([[0.5]]), jnp.array([[counts]])
    found = [x.tolist() for x in value_losses.n_step_return(*parts)]
    assert found == ([[2.0], [0.5], [1]] if counts else [[0.0], [1.0], [0]])
    assert "cumprod" not in str(jax.make_jaxpr(value_losses.n_step_return)(*parts))


def test_n_step_return_stops_where_rows_do_not_follow():
    reward = jnp.asarray([1.0, 2.0, 4.0, 8.0])
    follows = jnp.asarray([True, True, False, True])
    total, decay, count = value_losses.n_step_return(reward, jnp.full(4, 0.5), follows)
    assert (float(total), float(decay), int(count)) == (2.0, 0.25, 2)


def test_huber_loss_equals_published_values():
    found = jnp.asarray([-2, 0.5, 0, 0.5, 2, 4, 132])
    wanted = jnp.asarray([0, -0.5, 0, 1, 1, 2, 0.3])
    expected = [1.5, 0.5, 0, 0.125, 0.5, 1.5, 131.2]
    np.testing.assert_allclose(value_losses.huber(found - wanted), expected, rtol=1e-6)


def test_huber_with_another_delta_equals_rlax_and_without_one_half_the_square():
    error = jnp.linspace(-3.0, 3.0, 13)
    np.testing.assert_allclose(
        value_losses.huber(error, 0.7), rlax.huber_loss(error, 0.7), rtol=1e-5
    )
    np.testing.assert_allclose(value_losses.huber(error, jnp.inf), 0.5 * error**2, rtol=1e-6)
    assert np.isfinite(jax.grad(lambda e: value_losses.huber(e, jnp.inf))(2.0))


def test_td_errors_equal_rlax_with_and_without_double_selection():
    rng = np.random.default_rng(0)
    q, online, target = (jnp.asarray(rng.normal(size=(6, 3)), jnp.float32) for _ in range(3))
    reward, discount = (jnp.asarray(rng.normal(size=6), jnp.float32) for _ in range(2))
    action = jnp.asarray(rng.integers(3, size=6), jnp.int32)
    taken = value_losses.q_of_action(q, action)
    plain = value_losses.td_error(taken, reward, discount, target.max(-1))
    expected = jax.vmap(rlax.q_learning)(q, action, reward, discount, target)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-6)
    double = value_losses.td_error(taken, reward, discount, value_losses.double_q(online, target))
    expected = jax.vmap(rlax.double_q_learning)(q, action, reward, discount, target, online)
    np.testing.assert_allclose(double, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        value_losses.td_target(reward, discount, target.max(-1)),
        plain + taken,
        rtol=1e-5,
        atol=1e-6,
    )


def test_dueling_q_has_mean_value_and_advantage_order():
    q = value_losses.dueling(
        jnp.asarray([[2.0], [0.0]]), jnp.asarray([[1.0, 3.0, 5.0], [0.0, 0.0, 6.0]])
    )
    np.testing.assert_allclose(q, [[0.0, 2.0, 4.0], [-2.0, -2.0, 4.0]])
