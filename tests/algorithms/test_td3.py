"""TD3's equations against numbers by hand, and its update against a plain second writing of it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

from sterling.algorithms.online import td3
from sterling.types import Mistake, Record, Spec

OBS, ACTIONS, ROWS = 3, 2, 16
BOX = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
learn = jax.jit(td3.learn)


def batch_of(rows=ROWS, **changes):
    rng = np.random.default_rng(0)
    vectors = [jnp.asarray(rng.normal(size=(rows, OBS)), jnp.float32) for _ in range(2)]
    batch = Record(
        obs=vectors[0],
        action=jnp.asarray(np.tanh(rng.normal(size=(rows, ACTIONS))), jnp.float32),
        reward=jnp.asarray(rng.normal(size=rows), jnp.float32),
        discount=jnp.asarray(rng.random(rows) < 0.8, jnp.float32),
        next_obs=vectors[1],
        last=jnp.zeros(rows, bool),
        mask=jnp.asarray(rng.random(rows) < 0.9),
        extras={"weight": jnp.asarray(rng.uniform(0.2, 1.0, rows), jnp.float32)},
    )
    return dataclasses.replace(batch, **changes)


def make(action=BOX, obs=VECTOR, **fields):
    config = td3.Config(**{"width": 8, "lr": 0.01, "tau": 0.1, **fields})
    return jax.jit(lambda key: td3.init(key, Spec(obs, action), config))(jax.random.key(0))


def linear(**fields):
    """No hidden layers; mu' = (tanh 1, tanh 1), Q'_1 = a_1 + a_2, Q'_2 = 1 + a_1."""
    state = make(depth=0, gamma=0.5, **fields)

    def parts(state):
        nets = [state.target.actor.net, state.target.critics.first, state.target.critics.second]
        return [x for net in nets for x in (net.layers[0].weight, net.layers[0].bias)]

    blind = jnp.zeros((OBS, 1))
    first = jnp.concatenate([blind, jnp.ones((2, 1))])
    second = jnp.concatenate([blind, jnp.array([[1.0], [0.0]])])
    values = [jnp.zeros((OBS, 2)), jnp.ones(2), first, jnp.zeros(1), second, jnp.ones(1)]
    return eqx.tree_at(parts, state, values)


def test_td3_target_without_noise_matches_hand_values():
    batch = batch_of(2, reward=jnp.array([1.0, 2.0]), discount=jnp.array([1.0, 0.0]))
    y = td3.target(linear(target_noise=0.0), batch, jax.random.key(0))
    smaller = min(2.0 * np.tanh(1.0), 1.0 + np.tanh(1.0))
    np.testing.assert_allclose(y, [1.0 + 0.5 * smaller, 2.0], rtol=1e-6)


def test_td3_target_policy_noise_and_actions_are_clipped():
    batch = batch_of(400, reward=jnp.zeros(400), discount=jnp.ones(400))
    state = linear(target_noise=100.0, noise_clip=0.1)  # all noise is at its bound
    smaller = np.asarray(td3.target(state, batch, jax.random.key(0))) / 0.5
    low, high = np.tanh(1.0) - 0.1, np.tanh(1.0) + 0.1
    expected = {round(a + b, 4) for a in (low, high) for b in (low, high)}
    assert {round(float(x), 4) for x in smaller} == expected
    state = linear(target_noise=100.0, noise_clip=9.0)
    assert td3.target(state, batch, jax.random.key(0)).max() <= 0.5 * 2.0


def mlp(net, x):
    for index, layer in enumerate(net.layers):
        x = jnp.dot(x, layer.weight) + layer.bias[None]
        x = x if index == len(net.layers) - 1 else jnp.maximum(x, 0.0)
    return x


def q_of(net, obs, action):
    return mlp(net, jnp.concatenate([obs, action], 1))[:, 0]


def mean(x, batch):
    return jnp.mean(x, where=batch.mask)


def step(params, grads, lr):
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optax.adam(lr).update(grads, optax.adam(lr).init(params))
    return optax.apply_updates(params, updates)


def plain_update(state, batch, key):
    """A first update with ``delay`` 1 once more, written straight from the equations."""
    config, target = state.config, state.target
    noise = jnp.clip(0.2 * jax.random.normal(key, (ROWS, ACTIONS)), -0.5, 0.5)
    action = jnp.clip(jnp.tanh(mlp(target.actor.net, batch.next_obs)) + noise, -1.0, 1.0)
    pair = (target.critics.first, target.critics.second)
    value = jnp.minimum(*(q_of(net, batch.next_obs, action) for net in pair))
    y = batch.reward + config.gamma * batch.discount * value

    def critic_loss(critics):
        pair = (critics.first, critics.second)
        errors = [(q_of(net, batch.obs, batch.action) - y) ** 2 for net in pair]
        return mean(0.5 * batch.extras["weight"] * (errors[0] + errors[1]), batch)

    critics = step(state.nets.critics, jax.grad(critic_loss)(state.nets.critics), config.lr)

    def actor_loss(actor):
        return -mean(q_of(critics.first, batch.obs, jnp.tanh(mlp(actor.net, batch.obs))), batch)

    actor = step(state.nets.actor, jax.grad(actor_loss)(state.nets.actor), config.lr)
    slow = jax.tree.map(lambda t, n: 0.9 * t + 0.1 * n, target, td3.Nets(actor, critics))
    return td3.Nets(actor, critics), slow


@pytest.mark.slow
def test_td3_update_equals_plain_reference():
    state, batch, key = make(delay=1), batch_of(), jax.random.key(4)
    after, signals = learn(state, batch, key)
    expected = jax.jit(plain_update)(state, batch, key)
    found = (after.nets, after.target)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-5)
    assert signals.samples["td_error"].shape == (ROWS,)


def test_td3_td_error_is_the_mean_absolute_error_of_both_critics():
    critics, batch = make().nets.critics, batch_of()
    y = jnp.linspace(-3.0, 3.0, ROWS)
    found = jax.jit(td3.critic_loss)(critics, batch, y)[1][1]
    errors = [q_of(net, batch.obs, batch.action) - y for net in (critics.first, critics.second)]
    assert float(jnp.stack(errors).min()) < -1.0  # its size is another number
    np.testing.assert_allclose(found, sum(map(jnp.abs, errors)) / 2.0, rtol=1e-5)


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(bool((a == b).all()) for a, b in pairs)


def test_td3_actor_and_targets_update_every_third_update():
    state = make(delay=3)
    moved = []
    for index in range(6):
        after, _ = learn(state, batch_of(), jax.random.key(index))
        assert not same(after.nets.critics, state.nets.critics)
        frozen = same(after.nets.actor, state.nets.actor)
        assert frozen == same(after.target, state.target)
        moved.append(not frozen)
        state = after
    assert moved == [False, False, True, False, False, True]


def test_td3_delayed_update_compiles_to_a_conditional_in_a_scan_over_seeds():
    """So that updates without the actor cost nothing: also where seeds run one after another."""
    state, batch = make(), batch_of()
    states, batches = (jax.tree.map(lambda x: jnp.stack([x, x]), t) for t in (state, batch))

    def updates(state, batch):
        keys = jax.random.split(jax.random.key(0), 4)
        return jax.lax.scan(lambda s, key: (td3.learn(s, batch, key)[0], None), state, keys)[0]

    def over_seeds(states, batches):
        return jax.lax.map(lambda each: updates(*each), (states, batches))

    assert "conditional(" in jax.jit(over_seeds).lower(states, batches).compile().as_text()


def test_td3_exploration_adds_noise_to_the_actor_output():
    state, obs = make(exploration_noise=0.1), jnp.zeros((5_000, OBS))
    calm, _ = td3.act(state, obs, jax.random.key(0), False)
    noisy, _ = td3.act(state, obs, jax.random.key(0), True)
    np.testing.assert_allclose(jnp.std(noisy - calm), 0.1, rtol=0.05)
    loud, _ = td3.act(make(exploration_noise=5.0), obs, jax.random.key(0), True)
    assert jnp.abs(loud).max() == 1.0


def test_actions_have_the_shape_of_their_space():
    state = make(spaces.Box(-1.0, 1.0, (2, 3), np.float32))
    action, _ = td3.act(state, jnp.zeros((5, OBS)), jax.random.key(0), True)
    assert action.shape == (5, 2, 3)
    assert td3.value(state, jnp.zeros((5, OBS))).shape == (5,)
    learn(state, batch_of(action=jnp.zeros((ROWS, 2, 3))), jax.random.key(0))


def test_td3_picture_encoder_is_trained_by_the_critics():
    state = make(obs=spaces.Box(0, 255, (10, 10, 4), np.uint8), delay=1)
    pictures = jax.random.randint(jax.random.key(1), (ROWS, 10, 10, 4), 0, 255).astype(jnp.uint8)
    batch = batch_of(obs=pictures, next_obs=pictures)
    after, _ = learn(state, batch, jax.random.key(0))
    assert not same(after.nets.critics.torso, state.nets.critics.torso)
    assert not same(after.target.critics.torso, state.target.critics.torso)


@pytest.mark.parametrize(
    ("action", "remedy"),
    [
        (spaces.Discrete(2), "Use dqn, sac or ppo"),
        (spaces.MultiDiscrete([2, 2]), "Use dqn, sac or ppo"),
    ],
)
def test_td3_refuses_other_action_spaces(action, remedy):
    with pytest.raises(Mistake, match=f"td3 does not support .* {remedy}"):
        make(action)
