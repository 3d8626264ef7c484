"""SAC's equations against numbers by hand, and its update against a plain second writing of it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

from sterling import random_keys
from sterling.algorithms.online import sac
from sterling.types import Record, Spec

OBS, ACTIONS, ROWS = 3, 2, 16
BOX = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
learn = jax.jit(sac.learn)


def batch_of(action, rows=ROWS, obs=None, **changes):
    rng = np.random.default_rng(0)
    vectors = [jnp.asarray(rng.normal(size=(rows, OBS)), jnp.float32) for _ in range(2)]
    batch = Record(
        obs=vectors[0] if obs is None else obs,
        action=action,
        reward=jnp.asarray(rng.normal(size=rows), jnp.float32),
        discount=jnp.asarray(rng.random(rows) < 0.8, jnp.float32),
        next_obs=vectors[1] if obs is None else obs,
        last=jnp.zeros(rows, bool),
        mask=jnp.asarray(rng.random(rows) < 0.9),
        extras={"weight": jnp.asarray(rng.uniform(0.2, 1.0, rows), jnp.float32)},
    )
    return dataclasses.replace(batch, **changes)


def continuous_batch():
    action = np.tanh(np.random.default_rng(1).normal(size=(ROWS, ACTIONS)))
    return batch_of(jnp.asarray(action, jnp.float32))


def discrete_batch():
    return batch_of(jnp.asarray(np.random.default_rng(1).integers(ACTIONS, size=ROWS), jnp.int32))


def make(action=BOX, obs=VECTOR, **fields):
    config = sac.Config(**{"width": 8, "lr": 0.01, "alpha": 0.3, "tau": 0.1, **fields})
    return jax.jit(lambda key: sac.init(key, Spec(obs, action), config))(jax.random.key(0))


def fixed_choices():
    """A state without hidden layers: Q_1 = (1, 4), Q_2 = (2, 3), pi = (1/4, 3/4) everywhere."""
    state = make(spaces.Discrete(2), depth=0, gamma=0.5)

    def layers(nets):
        return [x for net in nets for x in (net.layers[0].weight, net.layers[0].bias)]

    def every(state):
        nets = [state.critics.first, state.critics.second, state.target.first]
        return layers([*nets, state.target.second, state.actor.net])

    pair = [jnp.array([1.0, 4.0]), jnp.array([2.0, 3.0])]
    logits = jnp.log(jnp.array([0.25, 0.75]))
    biases = [*pair, *(bias + 10.0 for bias in pair), logits]
    values = [x for bias in biases for x in (jnp.zeros((OBS, 2)), bias)]
    return eqx.tree_at(every, state, values)


ENTROPY = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))


def test_sac_target_matches_hand_values_at_termination_and_truncation():
    batch = batch_of(
        jnp.array([0, 1]), 2, reward=jnp.array([1.0, 2.0]), discount=jnp.array([1.0, 0.0])
    )
    y = sac.target(fixed_choices(), batch, jax.random.key(0))
    soft = 0.25 * 11.0 + 0.75 * 13.0 + 0.3 * ENTROPY  # the smaller target critic of each choice
    np.testing.assert_allclose(y, [1.0 + 0.5 * soft, 2.0], rtol=1e-6)


def test_critic_loss_by_hand():
    batch = batch_of(
        jnp.array([0, 1, 1]),
        3,
        mask=jnp.array([True, True, False]),
        extras={"weight": jnp.array([1.0, 0.5, 1.0])},
    )
    loss, (metrics, error) = sac.critic_loss(
        fixed_choices().critics, batch, jnp.array([0.0, 2.0, 50.0])
    )
    # row 0: Q = 1, 2 and y = 0; row 1: Q = 4, 3 and y = 2, weight 1/2
    np.testing.assert_allclose(loss, 0.5 * (0.5 * (1 + 4) + 0.5 * 0.5 * (4 + 1)), rtol=1e-6)
    np.testing.assert_allclose(error[:2], [1.5, 1.5], rtol=1e-6)
    np.testing.assert_allclose(metrics["value/q"], 2.5, rtol=1e-6)


def test_actor_loss_by_hand():
    state, batch = fixed_choices(), discrete_batch()
    loss, (_, entropy) = sac.actor_loss(
        state.actor, state.critics, batch, jnp.float32(0.3), jax.random.key(0)
    )
    np.testing.assert_allclose(entropy, np.full(ROWS, ENTROPY), rtol=1e-5)
    np.testing.assert_allclose(loss, -(0.25 * 1.0 + 0.75 * 3.0 + 0.3 * ENTROPY), rtol=1e-5)


def test_alpha_loss_by_hand():
    batch = batch_of(jnp.array([0, 1]), 2, mask=jnp.array([True, False]))
    log_alpha = jnp.log(jnp.float32(0.5))
    found = sac.alpha_loss(log_alpha, jnp.array([1.0, 99.0]), jnp.float32(-2.0), batch)
    np.testing.assert_allclose(found, 1.5, rtol=1e-6)


def mlp(net, x):
    for index, layer in enumerate(net.layers):
        x = jnp.dot(x, layer.weight) + layer.bias[None]
        x = x if index == len(net.layers) - 1 else jnp.maximum(x, 0.0)
    return x


def mean(x, batch):
    return jnp.mean(x, where=batch.mask)


def plain_value(actor, critics, obs, alpha, noise):
    """V(s) and H, from the density of tanh of a normal as the paper's appendix C states it."""
    outputs = mlp(actor.net, obs)
    if noise is None:
        probability = jax.nn.softmax(outputs)
        q = jnp.minimum(mlp(critics.first, obs), mlp(critics.second, obs))
        entropy = -(probability * jnp.log(probability)).sum(-1)
        return (probability * q).sum(-1) + alpha * entropy, entropy
    mu, std = outputs[:, :ACTIONS], jnp.exp(outputs[:, ACTIONS:])
    action = jnp.tanh(mu + std * noise)
    log_prob = jax.scipy.stats.norm.logpdf(noise) - jnp.log(std) - jnp.log(1.0 - action**2)
    x = jnp.concatenate([obs, action], 1)
    q = jnp.minimum(mlp(critics.first, x)[:, 0], mlp(critics.second, x)[:, 0])
    return q - alpha * log_prob.sum(-1), -log_prob.sum(-1)


def plain_q(net, batch):
    if batch.action.ndim == 1:
        return mlp(net, batch.obs)[jnp.arange(ROWS), batch.action]
    return mlp(net, jnp.concatenate([batch.obs, batch.action], 1))[:, 0]


def step(params, grads, lr):
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optax.adam(lr).update(grads, optax.adam(lr).init(params))
    return optax.apply_updates(params, updates)


def plain_update(state, batch, noises, wanted):
    """The update once more, written straight from the equations."""
    config, alpha = state.config, jnp.exp(state.log_alpha)
    value, _ = plain_value(state.actor, state.target, batch.next_obs, alpha, noises[0])
    y = batch.reward + config.gamma * batch.discount * value

    def critic_loss(critics):
        errors = [(plain_q(net, batch) - y) ** 2 for net in (critics.first, critics.second)]
        return mean(0.5 * batch.extras["weight"] * (errors[0] + errors[1]), batch)

    critics = step(state.critics, jax.grad(critic_loss)(state.critics), config.lr)

    def actor_loss(actor):
        value, entropy = plain_value(actor, critics, batch.obs, alpha, noises[1])
        return -mean(value, batch), entropy

    grads, entropy = jax.grad(actor_loss, has_aux=True)(state.actor)
    actor = step(state.actor, grads, config.lr)
    slope = jax.grad(lambda x: mean(jnp.exp(x) * (entropy - wanted), batch))(state.log_alpha)
    slow = jax.tree.map(lambda t, c: 0.9 * t + 0.1 * c, state.target, critics)
    return actor, critics, slow, step(state.log_alpha, slope, config.lr)


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [False, True])
def test_sac_update_equals_plain_reference(discrete):
    state = make(spaces.Discrete(ACTIONS) if discrete else BOX)
    batch = discrete_batch() if discrete else continuous_batch()
    key = jax.random.key(4)
    noises = [
        jax.random.normal(k, (ROWS, ACTIONS))
        for k in (random_keys.fold(key, "next"), random_keys.fold(key, "now"))
    ]
    wanted = jnp.float32(0.98 * np.log(ACTIONS) if discrete else -ACTIONS)
    after, signals = learn(state, batch, key)
    expected = jax.jit(plain_update)(state, batch, [None] * 2 if discrete else noises, wanted)
    found = (after.actor, after.critics, after.target, after.log_alpha)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-5)
    soft, _ = plain_value(
        *(state.actor, state.target, batch.next_obs, jnp.float32(0.3)),
        None if discrete else noises[0],
    )
    y = batch.reward + state.config.gamma * batch.discount * soft
    sizes = [
        jnp.abs(plain_q(net, batch) - y) for net in (state.critics.first, state.critics.second)
    ]
    np.testing.assert_allclose(
        signals.samples["td_error"], 0.5 * (sizes[0] + sizes[1]), rtol=1e-4, atol=1e-5
    )


def test_sac_temperature_is_constant_without_tuning():
    after, _ = learn(make(tune_alpha=False), continuous_batch(), jax.random.key(0))
    np.testing.assert_allclose(jnp.exp(after.log_alpha), 0.3, rtol=1e-6)


@pytest.mark.parametrize(
    ("wanted", "way"), [pytest.param(-9.0, -1.0, marks=pytest.mark.slow), (9.0, 1.0)]
)
def test_sac_temperature_that_begins_at_0_is_still_tuned(wanted, way):
    """Its logarithm begins at that of 1e-6. Adam's first step is the step size: down where the
    policy is more random than asked for, up where it is less."""
    tuned = make(alpha=0.0, target_entropy=wanted)
    np.testing.assert_allclose(tuned.log_alpha, np.log(1e-6), rtol=1e-6)
    after, signals = learn(tuned, continuous_batch(), jax.random.key(0))
    assert -9.0 < signals.metrics["policy/entropy"] < 9.0
    step = 0.01 * way
    np.testing.assert_allclose(after.log_alpha - tuned.log_alpha, step, rtol=0.01)
    assert jnp.exp(make(alpha=0.0, tune_alpha=False).log_alpha) == 0.0


def test_target_entropy_counts_the_allowed_actions():
    actions = make(spaces.Discrete(4)).actor.actions
    mask = jnp.array([[True, True, True, False], [True, False, False, False]])
    obs = {"action_mask": mask, "x": jnp.zeros((2, OBS))}
    found = sac.target_entropy(actions, None, obs, share=0.98)
    np.testing.assert_allclose(found, [0.98 * np.log(3.0), 0.0], rtol=1e-6)
    assert sac.target_entropy(actions, -7.0, obs, share=0.98) == -7.0


def test_sac_masked_actions_are_never_taken():
    space = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": VECTOR})
    state = make(spaces.Discrete(3), space)
    obs = {"action_mask": jnp.tile(jnp.array([[1, 0, 1]]), (500, 1)), "x": jnp.zeros((500, OBS))}
    taken, _ = sac.act(state, obs, jax.random.key(0), True)
    assert set(np.unique(taken)) == {0, 2}
    batch = batch_of(taken, 500, obs=obs)
    after, _ = learn(state, batch, jax.random.key(0))
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(after))


def test_actions_have_the_shape_of_their_space():
    state = make(spaces.Box(-1.0, 1.0, (2, 3), np.float32))
    obs = jnp.zeros((5, OBS))
    for explore in (False, True):
        action, _ = sac.act(state, obs, jax.random.key(0), explore)
        assert action.shape == (5, 2, 3)
        assert (jnp.abs(action) <= 1.0).all()
    assert sac.value(state, obs).shape == (5,)
    learn(state, batch_of(jnp.zeros((ROWS, 2, 3))), jax.random.key(0))


@pytest.mark.slow  # DQN's test of pictures asks it of the same encoder
def test_sac_picture_encoder_is_trained_by_the_critics():
    space = spaces.Box(0, 255, (10, 10, 4), np.uint8)
    state = make(BOX, space)
    pictures = jax.random.randint(jax.random.key(1), (ROWS, 10, 10, 4), 0, 255).astype(jnp.uint8)
    taken, _ = sac.act(state, pictures, jax.random.key(0), True)
    after, _ = learn(state, batch_of(taken, obs=pictures), jax.random.key(0))
    before = state.critics.torso.parts[0].layers[0].weight
    assert (after.critics.torso.parts[0].layers[0].weight != before).any()
    moved = (after.target.torso.parts[0].layers[0].weight - before) * 10.0
    np.testing.assert_allclose(
        moved, after.critics.torso.parts[0].layers[0].weight - before, atol=1e-5
    )


def test_needs_follow_the_config():
    assert sac.needs(sac.Config()).gamma == 1.0
    needs = sac.needs(sac.Config(n_step=3, priority=0.6, learn=4))
    assert (needs.n_step, needs.gamma, needs.updates) == (3, 0.99, 4)
    assert (needs.priority, needs.correction) == (0.6, 0.4)
