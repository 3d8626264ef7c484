"""Dropout of critics: how often, for whom, and what stays."""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling import algorithms
from sterling.nets.obs_encoder import Encoder
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.nets.special_layers.dropout import DroppedCritics, dropped
from sterling.types import Spec

OBS, BOX = spaces.Box(-9.0, 9.0, (3,), np.float32), spaces.Box(-1.0, 1.0, (2,), np.float32)


def critics():
    torso = Encoder.create(jax.random.key(0), OBS)
    return CriticEnsemble.create(jax.random.key(1), torso, (64, 64), 2, members=2, layer_norm=True)


def batch(rows=50):
    rng = np.random.default_rng(0)
    return (jnp.asarray(rng.normal(size=(rows, size)), jnp.float32) for size in (3, 2))


def test_dropout_keeps_the_rate_and_the_mean():
    x = jnp.full((400, 500), 2.0)
    found = np.asarray(dropped(x, 0.3, jax.random.key(0)))
    np.testing.assert_allclose(np.unique(found), [0.0, 2.0 / 0.7], rtol=1e-6)
    np.testing.assert_allclose(np.mean(found == 0.0), 0.3, atol=0.005)
    np.testing.assert_allclose(found.mean(), 2.0, atol=0.02)


def test_dropout_masks_differ_by_row_member_layer_and_key():
    x = jnp.ones((2, 64))
    found = dropped(x, 0.5, jax.random.key(0))
    assert np.any(found[0] != found[1])
    made, (obs, action) = critics(), batch()
    same = jnp.broadcast_to(obs[:1], obs.shape), jnp.broadcast_to(action[:1], action.shape)
    q = DroppedCritics(made, 0.2, jax.random.key(2)).q_values(*same)
    assert len(np.unique(np.asarray(q[0]))) > 40  # rows
    twins = CriticEnsemble(made.torso, jax.tree.map(lambda x: x[jnp.array([0, 0])], made.nets))
    q = DroppedCritics(twins, 0.2, jax.random.key(2)).q_values(obs, action)
    assert np.abs(np.asarray(q[0] - q[1])).max() > 0.01  # members
    again = DroppedCritics(twins, 0.2, jax.random.key(2)).q_values(obs, action)
    np.testing.assert_array_equal(q, again)
    other = DroppedCritics(twins, 0.2, jax.random.key(3)).q_values(obs, action)
    assert np.abs(np.asarray(q - other)).max() > 0.01


def test_dropped_critics_with_rate_zero_equal_plain_critics():
    made, (obs, action) = critics(), batch()
    q = DroppedCritics(made, 0.0, jax.random.key(2)).q_values(obs, action)
    np.testing.assert_allclose(q, made.q_values(obs, action), rtol=1e-6)


def test_droq_act_and_value_use_no_dropout():
    droq = algorithms.find("droq")
    config = droq.Config(width=8, dropout=0.9)
    state = droq.init(jax.random.key(0), Spec(OBS, BOX, 4, 100), config)
    obs, action = batch(4)
    q = state.critics.q_values(obs, action)
    np.testing.assert_allclose(droq.action_value(state, obs, action), q.mean(0), rtol=1e-6)
    first, second = (droq.act(state, obs, jax.random.key(k), False)[0] for k in (1, 2))
    np.testing.assert_array_equal(first, second)
