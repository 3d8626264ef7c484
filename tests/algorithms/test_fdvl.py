"""f-DVL: its loss in place of XQL's, and what it learns from a small log."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling.algorithms.offline import fdvl, xql
from sterling.types import Mistake, Record, Spec

OBS, ROWS = 3, 16
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
CHOICES = spaces.Discrete(3)
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
KEY = constant_key(0)


def make(module=fdvl, action=BOX, **fields):
    made = {"width": 8, "lr": 0.01, "anneal": False, "layer_norm": False, **fields}
    config = module.Config(**made)
    spec = Spec(VECTOR, action, iterations=10)
    return jax.jit(lambda key: module.init(key, spec, config))(KEY)


def batch_of():
    rng = np.random.default_rng(0)
    vectors = [jnp.asarray(rng.normal(size=(ROWS, OBS)), jnp.float32) for _ in range(2)]
    return Record(
        obs=vectors[0],
        action=jnp.asarray(np.tanh(rng.normal(size=(ROWS, 2))), jnp.float32),
        reward=jnp.asarray(rng.normal(size=ROWS), jnp.float32),
        discount=jnp.ones(ROWS),
        next_obs=vectors[1],
        last=jnp.zeros(ROWS, bool),
        mask=jnp.asarray(rng.random(ROWS) < 0.9),
    )


def mlp(net, x):
    for index, layer in enumerate(net.layers):
        x = jnp.dot(x, layer.weight) + layer.bias[None]
        x = x if index == len(net.layers) - 1 else jnp.maximum(x, 0.0)
    return x[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("divergence", fdvl.DIVERGENCES)
def test_fdvl_value_network_steps_along_the_dual_loss(divergence):
    state, batch = make(divergence=divergence, weight=0.7), batch_of()
    x = jnp.concatenate([batch.obs, batch.action], 1)
    q = jnp.minimum(mlp(state.target.first, x), mlp(state.target.second, x))

    def loss(net):
        value = mlp(net, batch.obs)
        above = jnp.where(q > value, q - value, 0.0)
        conjugate = above + above**2 / 4.0 if divergence == "chi_square" else above
        return jnp.mean(0.3 * value + 0.7 * conjugate, where=batch.mask)

    grads = jax.grad(loss)(state.value)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optax.adam(0.01).update(grads, optax.adam(0.01).init(state.value))
    expected = optax.apply_updates(state.value, updates)
    after, _ = jax.jit(fdvl.learn)(state, batch, KEY)
    for one, other in zip(jax.tree.leaves(after.value), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-5)


@pytest.mark.slow
def test_fdvl_policy_update_equals_xql():
    """At equal first parameters both have the same advantages, hence the same weights."""
    one, _ = jax.jit(fdvl.learn)(make(), batch_of(), KEY)
    other, _ = jax.jit(xql.learn)(make(xql), batch_of(), KEY)
    pairs = zip(jax.tree.leaves(one.policy), jax.tree.leaves(other.policy), strict=True)
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", fdvl.DIVERGENCES)
def test_fdvl_values_approach_the_maximum_of_a_small_log(divergence):
    """One state, three actions that end it with reward 0, 1 or 2, a fifth of them the best."""
    rng = np.random.default_rng(1)
    action = rng.choice(3, size=2000, p=[0.5, 0.3, 0.2]).astype(np.int32)
    zeros, flags = jnp.zeros((2000, OBS)), jnp.zeros(2000, bool)
    reward = jnp.asarray(action, jnp.float32)
    log = Record(zeros, jnp.asarray(action), reward, jnp.zeros(2000), zeros, ~flags, ~flags)

    def update(state, key):
        rows = jax.random.randint(key, (128,), 0, 2000)
        return fdvl.learn(state, jax.tree.map(lambda x: x[rows], log), key)[0], None

    keys = jax.random.split(jax.random.key(2), 1200)
    trained = jax.jit(lambda state: jax.lax.scan(update, state, keys)[0])
    made = {"action": CHOICES, "divergence": divergence, "beta": 5.0, "lr": 5e-3}
    after = trained(make(weight=0.92, **made))
    np.testing.assert_allclose(fdvl.value(after, zeros[:1]), [2.0], atol=0.1)
    assert fdvl.act(after, zeros[:1], KEY, False)[0] == 2
    assert float(fdvl.value(trained(make(weight=0.6, **made)), zeros[:1])[0]) < 1.9


def test_fdvl_refuses_unknown_divergence_and_multidiscrete():
    with pytest.raises(Mistake, match="chi_square"):
        fdvl.needs(fdvl.Config(divergence="kl"))
    with pytest.raises(Mistake, match="bc"):
        make(action=spaces.MultiDiscrete([2, 3]))


def test_fdvl_total_variation_needs_weight_above_one_half():
    with pytest.raises(Mistake, match=r"needs weight > 0\.5"):
        fdvl.needs(fdvl.Config(weight=0.5))
    fdvl.needs(fdvl.Config(weight=0.5, divergence="chi_square"))
