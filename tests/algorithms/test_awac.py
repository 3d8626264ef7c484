"""AWAC's values, weights and losses against numbers by hand and PyTorch's densities written out."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import random_keys
from sterling.algorithms.offline import awac
from sterling.types import Mistake, Record, Spec

OBS, ACTIONS, ROWS = 3, 2, 16
BOX = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
FORMS = [BOX, spaces.Discrete(2)]


def batch_of(space, **changes):
    rng = np.random.default_rng(0)
    obs, following = (jnp.asarray(rng.normal(size=(ROWS, OBS)), jnp.float32) for _ in range(2))
    if isinstance(space, spaces.Discrete):
        action = jnp.asarray(rng.integers(2, size=ROWS), jnp.int32)
    else:
        action = jnp.asarray(np.tanh(rng.normal(size=(ROWS, *space.shape))), jnp.float32)
    batch = Record(
        obs=obs,
        action=action,
        reward=jnp.asarray(rng.normal(size=ROWS), jnp.float32),
        discount=jnp.asarray(rng.random(ROWS) < 0.8, jnp.float32),
        next_obs=following,
        last=jnp.zeros(ROWS, bool),
        mask=jnp.asarray(rng.random(ROWS) < 0.9),
        extras={},
    )
    return dataclasses.replace(batch, **changes)


def make(space=BOX, **fields):
    config = awac.Config(**{"width": 8, "depth": 1, "lr": 0.01, **fields})
    spec = Spec(VECTOR, space)
    return jax.jit(lambda key: awac.init(key, spec, config))(jax.random.key(0))


def fixed_choices(**fields):
    """Q_1 = (1, 4), Q_2 = (2, 3), targets larger by 10, pi = (1/4, 3/4) everywhere."""
    state = make(FORMS[1], depth=0, gamma=0.5, **fields)

    def every(state):
        nets = [state.critics.first, state.critics.second, state.target.first]
        nets = [*nets, state.target.second, state.actor.net]
        return [x for net in nets for x in (net.layers[0].weight, net.layers[0].bias)]

    pair = [jnp.array([1.0, 4.0]), jnp.array([2.0, 3.0])]
    biases = [*pair, *(bias + 10.0 for bias in pair), jnp.log(jnp.array([0.25, 0.75]))]
    return eqx.tree_at(every, state, [x for b in biases for x in (jnp.zeros((OBS, 2)), b)])


def test_awac_target_for_discrete_actions_matches_hand_values():
    batch = batch_of(FORMS[1])
    y = awac.target(fixed_choices(), batch, jax.random.key(0))
    expected = batch.reward + 0.5 * batch.discount * (0.25 * 11.0 + 0.75 * 13.0)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(("temperature", "most"), [(1.0, 100.0), (0.5, 100.0), (0.05, 2.0)])
def test_awac_advantage_weights_for_discrete_actions_match_hand_values(temperature, most):
    """min Q = (1, 3) and V = 1/4 + 9/4 = 2.5, so that advantages are -1.5 and 0.5."""
    state = fixed_choices(temperature=temperature, most=most)
    batch = batch_of(FORMS[1])
    found = awac.policy_weights(state.actor, state.critics, batch, state.config, jax.random.key(0))
    advantage = np.where(np.asarray(batch.action) == 0, -1.5, 0.5)
    expected = np.minimum(np.exp(advantage / temperature), most)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_awac_advantage_weights_for_continuous_actions_match_reference():
    state, batch, key = make(temperature=0.7), batch_of(BOX), jax.random.key(4)
    mean = np.tanh(np.asarray(state.actor.net(batch.obs)))
    noise = np.asarray(jax.random.normal(key, (ROWS, ACTIONS)))
    sample = jnp.asarray(np.clip(mean + noise, -1.0, 1.0))  # the deviation begins as 1
    q, v = (np.min(state.critics.q_values(batch.obs, a), 0) for a in (batch.action, sample))
    found = awac.policy_weights(state.actor, state.critics, batch, state.config, key)
    np.testing.assert_allclose(found, np.exp((q - v) / 0.7), rtol=1e-4)


def test_awac_actor_loss_is_advantage_weighted_log_likelihood():
    state, batch = make(), batch_of(BOX)
    weight = np.random.default_rng(2).uniform(0.0, 3.0, ROWS).astype(np.float32)
    mean = np.tanh(np.asarray(state.actor.net(batch.obs)))
    log_p = -0.5 * np.square(np.asarray(batch.action) - mean) - 0.5 * np.log(2 * np.pi)
    mask = np.asarray(batch.mask)
    loss, _ = awac.actor_loss(state.actor, state.critics, batch, jnp.asarray(weight))
    np.testing.assert_allclose(loss, -(weight * log_p.sum(1))[mask].mean(), rtol=1e-5)


@pytest.mark.parametrize("space", FORMS, ids=["box", "discrete"])
def test_awac_update_changes_actor_critics_and_target(space):
    state, batch = make(space, tau=0.1), batch_of(space)
    after, signals = jax.jit(awac.learn)(state, batch, jax.random.key(0))
    for name in ("actor", "critics"):
        pairs = zip(*(jax.tree.leaves(getattr(s, name)) for s in (state, after)), strict=True)
        assert all((one != other).any() for one, other in pairs), name
    new, old = after.critics.first.layers[0].weight, state.target.first.layers[0].weight
    np.testing.assert_allclose(
        after.target.first.layers[0].weight, old + 0.1 * (new - old), rtol=1e-4, atol=1e-6
    )
    y = awac.target(state, batch, random_keys.fold(jax.random.key(0), "next"))
    action = batch.action if space is BOX else None
    q = (
        jnp.stack(state.critics.q_values(batch.obs, action))
        if space is BOX
        else jnp.stack(state.critics.all_q_values(batch.obs))[:, jnp.arange(ROWS), batch.action]
    )
    expected = jnp.abs(q - y[None]).mean(0)
    np.testing.assert_allclose(signals.samples["td_error"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.1, 1000.0])
def test_awac_small_temperature_maximises_and_large_one_imitates_the_log(temperature):
    """Choice 0 is logged three times as often and pays 0, choice 1 pays 1; then the world ends."""
    action = jnp.asarray(np.arange(ROWS) % 4 == 0, jnp.int32)
    batch = batch_of(
        FORMS[1],
        obs=jnp.ones((ROWS, OBS)),
        action=action,
        reward=action.astype(jnp.float32),
        discount=jnp.zeros(ROWS),
        mask=jnp.ones(ROWS, bool),
    )
    state = make(FORMS[1], temperature=temperature)
    each = jax.random.split(jax.random.key(0), 1000)
    run = jax.jit(lambda s: jax.lax.scan(
        lambda s, k: (awac.learn(s, batch, k)[0], None), s, each)[0])  # fmt: skip
    ones = jnp.ones((1, OBS))
    found = float(jnp.exp(awac.log_prob(run(state), ones, jnp.ones(1, jnp.int32)))[0])
    assert abs(found - (1.0 if temperature == 0.1 else 0.25)) < 0.05


def test_awac_value_uses_mean_over_choices_or_mode_of_a_continuous_policy():
    np.testing.assert_allclose(awac.value(fixed_choices(), jnp.zeros((4, OBS))), 2.5)
    state, obs = make(), batch_of(BOX).obs
    action, _ = awac.act(state, obs, jax.random.key(0), False)
    expected = np.min(state.critics.q_values(obs, action), 0)
    np.testing.assert_allclose(awac.value(state, obs), expected, rtol=1e-5)


def test_awac_actions_match_action_space_and_multidiscrete_is_refused():
    state = make(spaces.Box(-1.0, 1.0, (2, 3), np.float32))
    obs = jnp.zeros((50, OBS))
    action, _ = awac.act(state, obs, jax.random.key(0), True)
    assert action.shape == (50, 2, 3)
    assert (jnp.abs(action) <= 1.0).all()
    assert awac.log_prob(state, obs, action).shape == (50,)
    with pytest.raises(Mistake, match=r"awac does not support MultiDiscrete.*Use bc"):
        make(spaces.MultiDiscrete([2, 3]))
