"""SPR and BBF on pictures: convolutions predict latents that are pictures, and each observation is
changed by a draw of its own. Their equations have oracles (tests/contract/oracles/q_learning/)."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.q_learning import bbf, c51, spr
from sterling.equations.latent_prediction import cosine_similarity
from sterling.nets.special_layers.latent_transition import LatentTransition
from sterling.types import Record, Spec

ROWS, STEPS, SIDE = 3, 3, 6
PICTURE = spaces.Box(0, 255, (SIDE, SIDE, 2), np.uint8)


def make(**fields):
    config = spr.Config(
        **{"width": 8, "batch": ROWS, "prediction_steps": STEPS, "adam_eps": 1e-8, **fields}
    )
    spec = Spec(PICTURE, spaces.Discrete(4), iterations=100)
    return jax.jit(lambda key: spr.init(key, spec, config))(jax.random.key(0))


def stretches():
    rng = np.random.default_rng(0)
    shape = (ROWS, STEPS + 1)
    seen = [jnp.asarray(rng.integers(0, 256, (*shape, SIDE, SIDE, 2)), jnp.uint8) for _ in "ab"]
    return Record(
        obs=seen[0],
        action=jnp.asarray(rng.integers(4, size=shape), jnp.int32),
        reward=jnp.asarray(rng.normal(size=shape), jnp.float32),
        discount=jnp.ones(shape),
        next_obs=seen[1],
        last=jnp.zeros(shape, bool),
        mask=jnp.ones(shape, bool),
        extras={"weight": jnp.ones(ROWS)},
    )


@pytest.mark.slow
def test_an_update_moves_every_weight_of_encoder_model_heads_and_predictor():
    state, batch = make(), stretches()
    learned, signals = jax.jit(spr.learn)(state, batch, jax.random.key(1))
    assert -STEPS <= signals.metrics["loss/prediction"] <= STEPS
    pairs = jax.tree_util.tree_leaves_with_path(state.net), jax.tree.leaves(learned.net)
    for (path, before), after in zip(*pairs, strict=True):
        assert (before != after).any(), jax.tree_util.keystr(path)


def test_every_observation_of_a_sequence_is_shifted_and_brightened_by_its_own_draw():
    one = jnp.asarray(np.random.default_rng(0).integers(60, 160, (SIDE, SIDE, 2)), jnp.uint8)
    obs = jnp.broadcast_to(one, (20, STEPS + 1, SIDE, SIDE, 2))
    batch = dataclasses.replace(
        stretches(), obs=obs, next_obs=obs, mask=jnp.ones((20, STEPS + 1), bool)
    )
    changed = jax.jit(make(shift=2).augment.on_each_row)(batch, jax.random.key(0))
    assert changed.obs.dtype == jnp.uint8
    pictures = np.concatenate(
        [np.asarray(x).reshape(80, -1) for x in (changed.obs, changed.next_obs)]
    )
    assert len(np.unique(pictures, axis=0)) > 150
    factors = pictures.mean(1) / np.asarray(one).mean()
    assert 0.8 < factors.min() < 0.97
    assert 1.03 < factors.max() < 1.2
    assert make(shift=0).augment is None


def test_the_model_of_pictures_sees_neighbours_and_the_action_alone():
    """A number of the latent reaches its own place and four cells around it, by two filters."""
    model = LatentTransition.create(jax.random.key(0), 7 * 7 * 2, 3, (7, 7, 2))
    latent = jax.random.uniform(jax.random.key(1), (1, 98))

    @jax.jit
    def before_scaling(z, action):
        planes = jnp.broadcast_to(jax.nn.one_hot(action, 3)[:, None, None], (1, 7, 7, 3))
        x = jnp.concatenate([z.reshape(1, 7, 7, 2), planes], -1)
        for layer in model.layers:
            x = jax.nn.relu(layer.same_size(x))
        return x

    run = eqx.filter_jit(model)
    found, action = run(latent, jnp.array([1])), jnp.array([1])
    plain = before_scaling(latent, action)
    wanted = (plain - plain.min()) / (plain.max() - plain.min() + 1e-5)
    np.testing.assert_allclose(found, wanted.reshape(1, -1), atol=1e-6)
    moved = latent.reshape(1, 7, 7, 2).at[0, 0, 0].add(1.0).reshape(1, -1)
    change = np.abs(before_scaling(moved, action) - plain)[0].max(-1)
    assert change[:3, :3].max() > 0.0
    assert change[3:].max() == 0.0
    assert change[:, 3:].max() == 0.0
    assert (run(latent, jnp.array([2])) != found).any()


def test_the_cosine_has_a_gradient_at_zero_and_ignores_lengths():
    x, y = jnp.array([[3.0, 4.0]]), jnp.array([[8.0, 6.0]])
    np.testing.assert_allclose(cosine_similarity(x, y), [0.96], rtol=1e-6)
    np.testing.assert_allclose(cosine_similarity(7.0 * x, -y), [-0.96], rtol=1e-6)
    slope = jax.grad(lambda x: cosine_similarity(x, y).sum())(jnp.zeros((1, 2)))
    assert jnp.isfinite(slope).all()


def test_bbf_acts_by_its_target_network():
    config = bbf.Config(width=8, tau=0.1, exploration_initial=0.0)
    spec = Spec(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(4))
    state = jax.jit(lambda key: bbf.init(key, spec, config))(jax.random.key(0))
    other = jax.jit(lambda key: bbf.init(key, spec, config))(jax.random.key(1))
    obs = jax.random.normal(jax.random.key(2), (40, 3))
    q = [c51.q_values(net(obs), config) for net in (state.net, other.net)]
    mixed = dataclasses.replace(state, target=other.net)
    for explore in (True, False):
        action, _ = bbf.act(mixed, obs, jax.random.key(3), explore)
        np.testing.assert_array_equal(action, q[1].argmax(-1))
    assert (q[0].argmax(-1) != q[1].argmax(-1)).any()
    np.testing.assert_allclose(bbf.value(mixed, obs), q[1].max(-1), rtol=1e-6)
    np.testing.assert_array_equal(bbf.log_prob(mixed, obs, action), jnp.zeros(40))


@pytest.mark.slow
def test_bbf_renews_convolutions_by_half_and_heads_wholly():
    config = bbf.Config(
        width=8, batch=ROWS, prediction_steps=STEPS, reset_period=3, tau=0.0, lr=0.0
    )
    spec = Spec(PICTURE, spaces.Discrete(4), iterations=100)
    usual = jax.eval_shape(lambda key: bbf.init(key, spec, config), jax.random.key(0))
    assert usual.net.torso.grid == (1, 1, 128)
    spec = dataclasses.replace(spec, encoder="grid")
    state = jax.jit(lambda key: bbf.init(key, spec, config))(jax.random.key(0))
    learn = jax.jit(bbf.learn)
    for _ in range(2):
        state, _ = learn(state, stretches(), jax.random.key(1))
    before = state
    state, _ = learn(state, stretches(), jax.random.key(1))
    assert (int(state.since), int(state.updates)) == (0, 3)
    assert int(jax.tree.leaves(state.optimiser)[0]) == 0

    def likeness(part):
        one, other = (jnp.concatenate([x.ravel() for x in jax.tree.leaves(part(net)) if x.ndim > 1])
                      for net in (before.net, state.net))  # fmt: skip
        return float(cosine_similarity(one, other))

    for part in (lambda net: net.torso, lambda net: net.transition):
        np.testing.assert_allclose(likeness(part), 0.5**0.5, atol=0.03)
    assert abs(likeness(lambda net: (net.projection, net.value, net.advantage))) < 0.1
    target, net = state.target.projection.layers[0].weight, state.net.projection.layers[0].weight
    assert (target != net).all()
