"""XQL's update against a plain second writing of it, and what it learns from a small log."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling.algorithms.offline import iql, xql
from sterling.nets.running_statistics import STD_OFFSET
from sterling.types import Log, Mistake, Record, Spec

OBS, ROWS = 3, 16
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
CHOICES = spaces.Discrete(3)
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
KEY = constant_key(0)
learn = jax.jit(xql.learn)


def batch_of(action=BOX, **changes):
    rng = np.random.default_rng(0)
    vectors = [jnp.asarray(rng.normal(size=(ROWS, OBS)), jnp.float32) for _ in range(2)]
    taken = np.tanh(rng.normal(size=(ROWS, 2))).astype(np.float32)
    if action is CHOICES:
        taken = rng.integers(3, size=ROWS).astype(np.int32)
    batch = Record(
        obs=vectors[0],
        action=jnp.asarray(taken),
        reward=jnp.asarray(rng.normal(size=ROWS), jnp.float32),
        discount=jnp.asarray(rng.random(ROWS) < 0.8, jnp.float32),
        next_obs=vectors[1],
        last=jnp.zeros(ROWS, bool),
        mask=jnp.asarray(rng.random(ROWS) < 0.9),
    )
    return dataclasses.replace(batch, **changes)


def make(action=BOX, log=None, **fields):
    config = xql.Config(**{"width": 8, "lr": 0.01, "tau": 0.1, "anneal": False, **fields})
    spec = Spec(VECTOR, action, iterations=10, log=log)
    return jax.jit(lambda key: xql.init(key, spec, config))(jax.random.key(0))


def mlp(net, x):
    for index, layer in enumerate(net.layers):
        x = jnp.dot(x, layer.weight) + layer.bias[None]
        if index < len(net.layers) - 1:
            if net.norms:
                deviation = jnp.sqrt(jnp.var(x, 1, keepdims=True) + 1e-6)
                x = (x - jnp.mean(x, 1, keepdims=True)) / deviation
                x = x * net.norms[index].scale[None] + net.norms[index].shift[None]
            x = jnp.maximum(x, 0.0)
    return x


def q_of(net, batch):
    if batch.action.ndim == 1:
        return mlp(net, batch.obs)[jnp.arange(ROWS), batch.action]
    return mlp(net, jnp.concatenate([batch.obs, batch.action], 1))[:, 0]


def mean(x, batch):
    return jnp.mean(x, where=batch.mask)


def step(params, grads, lr):
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optax.adam(lr).update(grads, optax.adam(lr).init(params))
    return optax.apply_updates(params, updates)


def log_prob(policy, batch):
    out = mlp(policy.net, batch.obs)
    if batch.action.ndim == 1:
        return jax.nn.log_softmax(out)[jnp.arange(ROWS), batch.action]
    z = (batch.action - jnp.tanh(out)) * jnp.exp(-policy.log_std)[None]
    return jnp.sum(-0.5 * z**2 - policy.log_std[None] - 0.5 * np.log(2 * np.pi), 1)


def plain_update(state, batch):
    """A first update once more, written straight from the equations."""
    config = state.config
    q = jnp.minimum(q_of(state.target.first, batch), q_of(state.target.second, batch))

    def value_loss(net):
        z = (q - mlp(net, batch.obs)[:, 0]) / config.temperature
        return mean(jnp.exp(z) - z - 1.0, batch)

    advantage = q - mlp(state.value, batch.obs)[:, 0]
    value = step(state.value, jax.grad(value_loss)(state.value), config.lr)

    def policy_loss(policy):
        weight = jnp.minimum(jnp.exp(config.beta * advantage), 100.0)
        return -mean(weight * log_prob(policy, batch), batch)

    policy = step(state.policy, jax.grad(policy_loss)(state.policy), config.lr)
    y = batch.reward + config.gamma * batch.discount * mlp(value, batch.next_obs)[:, 0]

    def critic_loss(critics):
        errors = [(q_of(net, batch) - y) ** 2 for net in (critics.first, critics.second)]
        return mean(0.5 * (errors[0] + errors[1]), batch)

    critics = step(state.critics, jax.grad(critic_loss)(state.critics), config.lr)
    slow = jax.tree.map(lambda t, n: 0.9 * t + 0.1 * n, state.target, critics)
    return policy, value, critics, slow


@pytest.mark.slow
@pytest.mark.parametrize("action", [BOX, CHOICES], ids=["box", "choices"])
def test_xql_update_equals_plain_reference(action):
    state, batch = make(action), batch_of(action)
    after, signals = learn(state, batch, jax.random.key(4))
    expected = jax.jit(plain_update)(state, batch)
    found = (after.policy, after.value, after.critics, after.target)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=5e-5)
    assert signals.samples["td_error"].shape == (ROWS,)
    assert int(after.updates) == 1


def test_xql_policy_learning_rate_follows_a_cosine():
    state = make(anneal=True)
    rates = [dataclasses.replace(state, updates=jnp.asarray(n, jnp.int32)) for n in (0, 5, 10)]
    found = [iql.policy_lr(state) for state in rates]
    np.testing.assert_allclose(found, [0.01, 0.005, 0.0], atol=1e-8)
    np.testing.assert_allclose(iql.policy_lr(make(anneal=False)), 0.01)


def test_xql_scales_rewards_and_observations_by_the_log():
    log = Log(np.full(OBS, 3.0), np.full(OBS, 2.0 - STD_OFFSET), (0.0, 1.0), (-50.0, 150.0), 9)
    state = make(log=log, scale_reward=True, normalise_obs=True)
    np.testing.assert_allclose(state.reward_scale, 5.0)
    shifted = batch_of()
    moved = dataclasses.replace(
        shifted, obs=shifted.obs * 2.0 + 3.0, next_obs=shifted.next_obs * 2.0 + 3.0
    )
    plain = make()
    clean, _ = learn(plain, dataclasses.replace(shifted, reward=shifted.reward * 5.0), KEY)
    found, _ = learn(state, moved, KEY)
    np.testing.assert_allclose(
        found.critics.first.layers[0].weight,
        clean.critics.first.layers[0].weight,
        rtol=1e-3,
        atol=1e-4,
    )
    np.testing.assert_allclose(xql.value(state, moved.obs), xql.value(plain, shifted.obs), 1e-4)


@pytest.mark.slow
def test_xql_values_are_soft_maxima_of_a_small_log():
    """One state, three actions that end it with reward 0, 1 or 2, the best one of them rare."""
    share = np.array([0.5, 0.4, 0.1])
    rng = np.random.default_rng(1)
    action = rng.choice(3, size=2000, p=share).astype(np.int32)
    zeros = jnp.zeros((2000, OBS))
    flags = jnp.zeros(2000, bool)
    reward = jnp.asarray(action, jnp.float32)
    log = Record(zeros, jnp.asarray(action), reward, jnp.zeros(2000), zeros, ~flags, ~flags)

    def trained(state, updates):
        def update(state, key):
            rows = jax.random.randint(key, (128,), 0, 2000)
            return xql.learn(state, jax.tree.map(lambda x: x[rows], log), key)[0], None

        keys = jax.random.split(jax.random.key(2), updates)
        return jax.jit(lambda s: jax.lax.scan(update, s, keys)[0])(state)

    for temperature in (0.1, 1.0):
        state = trained(make(CHOICES, temperature=temperature, beta=5.0, lr=5e-3), 1200)
        expected = temperature * np.log(share @ np.exp(np.arange(3) / temperature))
        np.testing.assert_allclose(xql.value(state, zeros[:1]), [expected], atol=0.1)
        assert xql.act(state, zeros[:1], jax.random.key(0), False)[0] == 2


def test_xql_refuses_multidiscrete_actions():
    with pytest.raises(Mistake, match="bc"):
        make(spaces.MultiDiscrete([2, 3]))
