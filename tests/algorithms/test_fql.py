"""FQL's equations against plain second writings of them, and what it learns from a small log."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling import random_keys
from sterling.algorithms.offline import fql
from sterling.types import Mistake, Record, Spec

OBS, ACTIONS, ROWS = 3, 2, 16
BOX = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
KEY = constant_key(4)


def batch_of():
    rng = np.random.default_rng(0)
    vectors = [jnp.asarray(rng.normal(size=(ROWS, OBS)), jnp.float32) for _ in range(2)]
    return Record(
        obs=vectors[0],
        action=jnp.asarray(np.tanh(rng.normal(size=(ROWS, ACTIONS))), jnp.float32),
        reward=jnp.asarray(rng.normal(size=ROWS), jnp.float32),
        discount=jnp.asarray(rng.random(ROWS) < 0.8, jnp.float32),
        next_obs=vectors[1],
        last=jnp.zeros(ROWS, bool),
        mask=jnp.asarray(rng.random(ROWS) < 0.9),
    )


def make(action=BOX, **fields):
    made = {"width": 8, "depth": 1, "lr": 0.01, "tau": 0.1, "layer_norm": False, **fields}
    config = fql.Config(**made)
    return jax.jit(lambda key: fql.init(key, Spec(VECTOR, action), config))(jax.random.key(0))


def gelu(x):
    """By its approximation (Hendrycks and Gimpel 2016), as in the authors' code."""
    return 0.5 * x * (1.0 + jnp.tanh(np.sqrt(2.0 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)))


def mlp(net, *parts):
    """One hidden layer."""
    x = jnp.concatenate(parts, 1)
    first, second = net.layers
    x = jnp.dot(x, first.weight) + first.bias[None]
    x = gelu(x) if net.activation == "gelu" else jnp.maximum(x, 0.0)
    return jnp.dot(x, second.weight) + second.bias[None]


def q_of(critics, obs, action):
    return [mlp(net, obs, action)[:, 0] for net in (critics.first, critics.second)]


def mean(x, batch):
    return jnp.mean(x, where=batch.mask)


def plain_target(state, batch, key, how):
    noise = jax.random.normal(key, (ROWS, ACTIONS))
    action = jnp.clip(mlp(state.actors.one_step, batch.next_obs, noise), -1.0, 1.0)
    one, other = q_of(state.target, batch.next_obs, action)
    value = jnp.minimum(one, other) if how == "min" else (one + other) / 2.0
    return batch.reward + 0.99 * batch.discount * value


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mean", "min"])
def test_fql_target_equals_plain_reference(how):
    state, batch = make(q_agg=how), batch_of()
    found = jax.jit(fql.target)(state, batch, KEY)
    np.testing.assert_allclose(found, plain_target(state, batch, KEY, how), rtol=1e-4, atol=1e-5)


def plain_actor_loss(actors, critics, batch, config, key):
    """With the flow in a plain loop."""
    draws = random_keys.split(key, "noise", 3)
    start = jax.random.normal(draws[0], (ROWS, ACTIONS))
    time = jax.random.uniform(draws[1], (ROWS, 1))
    middle = (1.0 - time) * start + time * batch.action
    apart = mlp(actors.velocity, batch.obs, middle, time) - (batch.action - start)
    flow = mean(jnp.mean(apart**2, 1), batch)
    noise = jax.random.normal(draws[2], (ROWS, ACTIONS))
    x = noise
    for index in range(config.flow_steps):
        at = jnp.full((ROWS, 1), index / config.flow_steps)
        x = x + mlp(actors.velocity, batch.obs, x, at) / config.flow_steps
    x = jax.lax.stop_gradient(jnp.clip(x, -1.0, 1.0))
    action = mlp(actors.one_step, batch.obs, noise)
    near = mean(jnp.mean((action - x) ** 2, 1), batch)
    one, other = q_of(critics, batch.obs, jnp.clip(action, -1.0, 1.0))
    q = (one + other) / 2.0
    worth = mean(q, batch)
    if config.normalise_q:
        worth = worth / jax.lax.stop_gradient(mean(jnp.abs(q), batch))
    return flow + config.alpha * near - worth


@pytest.mark.slow
@pytest.mark.parametrize("normalise", [False, True])
def test_fql_update_equals_plain_reference(normalise):
    state, batch = make(normalise_q=normalise, flow_steps=3, alpha=2.0), batch_of()
    config = fql.Config(normalise_q=normalise, flow_steps=3, alpha=2.0)

    def step(params, loss, *rest):
        grads = jax.grad(loss)(params, *rest)
        with jax.numpy_dtype_promotion("standard"):
            updates, _ = optax.adam(0.01).update(grads, optax.adam(0.01).init(params))
        return optax.apply_updates(params, updates)

    @jax.jit
    def plain(state, batch):
        y = plain_target(state, batch, random_keys.fold(KEY, "next"), "mean")

        def critic_loss(critics):
            return mean(
                0.5 * sum((q - y) ** 2 for q in q_of(critics, batch.obs, batch.action)), batch
            )

        critics = step(state.critics, critic_loss)
        rest = (critics, batch, config, random_keys.fold(KEY, "now"))
        actors = step(state.actors, plain_actor_loss, *rest)
        slow = jax.tree.map(lambda t, n: 0.9 * t + 0.1 * n, state.target, critics)
        return actors, critics, slow

    after, signals = jax.jit(fql.learn)(state, batch, KEY)
    found, expected = (after.actors, after.critics, after.target), plain(state, batch)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=5e-5)
    assert signals.samples["td_error"].shape == (ROWS,)


def test_fql_one_step_policy_passes_no_gradient_to_the_flow():
    state, batch = make(alpha=0.0), batch_of()

    def grads(config):
        def loss(actors):
            return fql.actor_loss(actors, state.critics, batch, config, KEY)[0]

        return jax.jit(jax.grad(loss))(state.actors)

    near, far = grads(state.config), grads(fql.Config(alpha=100.0))
    same = zip(jax.tree.leaves(near.velocity), jax.tree.leaves(far.velocity), strict=True)
    for one, other in same:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    moved = far.one_step.layers[0].weight - near.one_step.layers[0].weight
    assert np.abs(moved).max() > 1e-3


def trained(alpha):
    """One state; the log holds actions near -0.7 (reward 0) and near 0.7 (reward 1)."""
    rng = np.random.default_rng(1)
    side = rng.choice([-1.0, 1.0], size=(2000, 1))
    action = jnp.asarray(0.7 * side + 0.05 * rng.normal(size=(2000, 1)), jnp.float32)
    reward = jnp.asarray(side[:, 0] > 0.0, jnp.float32)
    zeros, flags = jnp.zeros((2000, OBS)), jnp.zeros(2000, bool)
    log = Record(zeros, action, reward, jnp.zeros(2000), zeros, ~flags, ~flags)
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    state = make(box, alpha=alpha, lr=3e-3, width=32, depth=2, layer_norm=True)

    def update(state, key):
        rows = jax.random.randint(key, (128,), 0, 2000)
        return fql.learn(state, jax.tree.map(lambda x: x[rows], log), key)[0], None

    updates = jax.random.split(jax.random.key(2), 1500)
    return jax.jit(lambda s: jax.lax.scan(update, s, updates)[0])(state)


@pytest.mark.slow
def test_fql_large_alpha_samples_both_modes_small_alpha_the_better_one():
    obs = jnp.zeros((1000, OBS))
    actions = [
        np.asarray(fql.act(trained(alpha), obs, jax.random.key(5), False)[0])[:, 0]
        for alpha in (1000.0, 0.3)
    ]
    both, better = actions
    assert 0.35 < (both > 0.0).mean() < 0.65
    assert (np.abs(np.abs(both) - 0.7) < 0.25).mean() > 0.7
    assert (better > 0.2).mean() > 0.95


def test_fql_refuses_discrete_actions_and_unknown_q_aggregation():
    with pytest.raises(Mistake, match="Use cql, iql"):
        make(spaces.Discrete(3))
    with pytest.raises(Mistake, match="Use bc"):
        make(spaces.MultiDiscrete([2, 3]))
    with pytest.raises(Mistake, match="mean or min"):
        make(q_agg="max")
