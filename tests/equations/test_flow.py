"""Flow matching against flows that are known, and against a distribution with two modes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sterling.equations.flow_matching import flow_matching_loss, integrate_euler, interpolate
from sterling.nets.mlp import MLP


def test_flow_matching_path_and_loss_match_hand_values():
    noise, data = jnp.array([[1.0, 2.0]]), jnp.array([[3.0, -2.0]])
    np.testing.assert_allclose(interpolate(noise, data, jnp.array([[0.25]])), [[1.5, 1.0]])
    velocity = jnp.array([[2.0, 0.0]])
    np.testing.assert_allclose(flow_matching_loss(velocity, noise, data), [(0.0 + 16.0) / 2.0])
    np.testing.assert_allclose(flow_matching_loss(data - noise, noise, data), [0.0])


def test_flow_euler_steps_match_hand_values():
    start = jnp.array([[1.0, -2.0]])
    found = integrate_euler(
        lambda x, t: jnp.broadcast_to(t, x.shape), start, 4
    )  # sum of 0, 1/4, 1/2, 3/4
    np.testing.assert_allclose(found, start + 0.375, rtol=1e-6)
    found = integrate_euler(lambda x, t: x, start, 10)
    np.testing.assert_allclose(found, start * 1.1**10, rtol=1e-5)


def test_flow_of_exact_normal_velocity_carries_noise_to_the_normal():
    """For data N(m, s^2) the mean velocity is known in closed form."""
    m, s = 2.0, 0.5

    def field(x, t):
        variance = (1.0 - t) ** 2 + (t * s) ** 2
        slope = (t * s**2 - (1.0 - t)) / variance
        return m + slope * (x - t * m)

    noise = jax.random.normal(jax.random.key(0), (4000, 1))
    found = np.asarray(integrate_euler(field, noise, 100))
    assert abs(found.mean() - m) < 0.05
    assert abs(found.std() - s) < 0.05


@pytest.mark.slow
def test_flow_matching_recovers_two_modes():
    net = MLP.uniform(jax.random.key(0), (2, 64, 64, 1), "elu")

    def field(net, x, t):
        return net(jnp.concatenate([x, t], -1))

    def loss(net, key):
        keys = jax.random.split(key, 4)
        side = jnp.where(jax.random.bernoulli(keys[0], 0.3, (256, 1)), 1.0, -1.0)
        data = 0.7 * side + 0.05 * jax.random.normal(keys[1], (256, 1))
        noise, time = jax.random.normal(keys[2], (256, 1)), jax.random.uniform(keys[3], (256, 1))
        velocity = field(net, interpolate(noise, data, time), time)
        return jnp.mean(flow_matching_loss(velocity, noise, data))

    optimiser = optax.adam(3e-3)

    def step(carry, key):
        net, state = carry
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimiser.update(jax.grad(loss)(net, key), state)
        return (optax.apply_updates(net, updates), state), None

    @jax.jit
    def learned(net):
        keys = jax.random.split(jax.random.key(1), 2000)
        return jax.lax.scan(step, (net, optimiser.init(net)), keys)[0][0]

    net = learned(net)
    noise = jax.random.normal(jax.random.key(2), (4000, 1))
    found = np.asarray(integrate_euler(lambda x, t: field(net, x, t), noise, 40))[:, 0]
    assert abs((found > 0.0).mean() - 0.3) < 0.06
    near = np.abs(np.abs(found) - 0.7) < 0.2
    assert near.mean() > 0.85
