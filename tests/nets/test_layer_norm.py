"""Layer normalisation and batched ensembles against PyTorch's formulas written out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from scipy import special

from sterling.nets.mlp import MLP, Norm
from sterling.nets.obs_encoder import Encoder
from sterling.nets.q_ensemble import CriticEnsemble, TwinCritics
from sterling.nets.special_layers.simplicial_norm import simplices

values_of = eqx.filter_jit(lambda critics, obs, action: critics.q_values(obs, action))
VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)


def test_layer_norm_normalises_rows_separately():
    x = np.random.default_rng(0).normal(2.0, 3.0, (5, 4)).astype(np.float32)
    scale, shift = np.array([1.0, 2.0, 0.5, -1.0]), np.array([0.0, 1.0, 0.0, 3.0])
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)
    norm = Norm(jnp.asarray(scale, jnp.float32), jnp.asarray(shift, jnp.float32))
    np.testing.assert_allclose(norm(jnp.asarray(x)), expected * scale + shift, rtol=1e-4, atol=1e-5)


def test_layer_norm_mlp_matches_hand_values():
    net = MLP.uniform(jax.random.key(0), (3, 6, 5, 2), layer_norm=True)
    x = np.random.default_rng(1).normal(size=(7, 3))
    for layer, norm in zip(net.layers[:-1], net.norms, strict=True):
        x = x @ np.asarray(layer.weight) + np.asarray(layer.bias)
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)
        x = np.maximum(x * np.asarray(norm.scale) + np.asarray(norm.shift), 0.0)
    x = x @ np.asarray(net.layers[-1].weight) + np.asarray(net.layers[-1].bias)
    seen = jnp.asarray(np.random.default_rng(1).normal(size=(7, 3)), jnp.float32)
    found = eqx.filter_jit(net)(seen)
    np.testing.assert_allclose(found, x, rtol=1e-3, atol=1e-5)


def test_layer_norm_critics_stay_bounded_far_from_the_data():
    """A hidden layer of unit rows bounds the value whatever goes in (Ball 2023, section 4.2)."""
    torso = Encoder.create(jax.random.key(0), VECTOR)
    twins = TwinCritics.create(jax.random.key(0), torso, (16, 16), 2, layer_norm=True)
    plain = TwinCritics.create(jax.random.key(0), torso, (16, 16), 2)
    action = 1e4 * jnp.ones((1, 2))
    limit = jnp.linalg.norm(twins.first.layers[-1].weight) * 4.0 + 1.0  # |row| = sqrt(16)
    obs = jnp.zeros((1, 3))
    assert jnp.abs(values_of(twins, obs, action)[0])[0] <= limit
    assert jnp.abs(values_of(plain, obs, action)[0])[0] > 10.0 * limit


def test_critic_ensemble_members_are_separate_networks():
    torso = Encoder.create(jax.random.key(0), VECTOR)
    ensemble = CriticEnsemble.create(
        jax.random.key(1), torso, (8, 8), 2, members=3, layer_norm=True
    )
    obs, action = jax.random.normal(jax.random.key(2), (4, 3)), jnp.full((4, 2), 0.3)
    found = values_of(ensemble, obs, action)
    assert found.shape == (3, 4)
    x, alone = jnp.concatenate([obs, action], 1), eqx.filter_jit(lambda net, x: net(x))
    for index in range(3):
        net = jax.tree.map(lambda leaf, i=index: leaf[i], ensemble.nets)
        np.testing.assert_allclose(found[index], alone(net, x)[:, 0], rtol=1e-5, atol=1e-6)
    assert np.unique(np.asarray(found).round(4)).size == found.size
    some = ensemble.take_members(jnp.array([2, 0]))
    np.testing.assert_allclose(values_of(some, obs, action), found[jnp.array([2, 0])], rtol=1e-6)


def test_critic_ensemble_action_gradients_equal_finite_differences():
    torso = Encoder.create(jax.random.key(0), VECTOR)
    ensemble = CriticEnsemble.create(jax.random.key(1), torso, (16,), 2, members=3)
    obs, action = jax.random.normal(jax.random.key(2), (4, 3)), jnp.full((4, 2), 0.3)
    slopes = ensemble.action_gradients(obs, action)
    for index in range(2):
        step = 1e-3 * jax.nn.one_hot(index, 2)[None]
        ahead, back = (ensemble.q_values(obs, action + sign * step) for sign in (1.0, -1.0))
        np.testing.assert_allclose(slopes[..., index], (ahead - back) / 2e-3, atol=2e-3)


def test_simplicial_norm_makes_groups_of_eight_that_equal_scipys_softmax():
    x = np.random.default_rng(0).normal(size=(2, 3, 24)).astype(np.float32)
    wanted = special.softmax(x.reshape(2, 3, 3, 8), -1).reshape(x.shape)
    np.testing.assert_allclose(simplices(jnp.asarray(x)), wanted, rtol=1e-5)
