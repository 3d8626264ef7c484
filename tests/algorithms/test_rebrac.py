"""ReBRAC's targets by hand, and its losses against those of TD3 and TD3+BC where they agree."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.offline import rebrac, td3bc
from sterling.algorithms.online import td3
from sterling.types import Mistake, Record, Spec

OBS, ACTIONS, ROWS = 3, 2, 16
BOX = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
learn = jax.jit(rebrac.learn)


def batch_of(**changes):
    rng = np.random.default_rng(0)
    obs, following = (jnp.asarray(rng.normal(size=(ROWS, OBS)), jnp.float32) for _ in range(2))
    action, done = (
        jnp.asarray(np.tanh(rng.normal(size=(ROWS, ACTIONS))), jnp.float32) for _ in range(2)
    )
    kind = np.arange(ROWS) % 4  # 0: ends, 1: is cut, else goes on
    batch = Record(
        obs=obs,
        action=action,
        reward=jnp.asarray(rng.normal(size=ROWS), jnp.float32),
        discount=jnp.asarray(kind != 0, jnp.float32),
        next_obs=following,
        last=jnp.asarray(kind < 2),
        mask=jnp.asarray(rng.random(ROWS) < 0.9),
        extras={"next_action": jnp.where(jnp.asarray(kind < 2)[:, None], 0.0, done)},
    )
    return dataclasses.replace(batch, **changes)


def make(space=BOX, **fields):
    config = rebrac.Config(**{"width": 8, "depth": 2, "lr": 0.01, **fields})
    spec = Spec(VECTOR, space)
    return jax.jit(lambda key: rebrac.init(key, spec, config))(jax.random.key(0))


@pytest.mark.slow
def test_rebrac_targets_match_hand_values_at_termination_and_truncation():
    state, batch = make(critic_penalty=0.7, target_noise=0.0, gamma=0.9), batch_of()
    y, far = rebrac.target(state, batch, jax.random.key(0))
    action = np.asarray(state.target.action(batch.next_obs))
    q = np.min(state.target.critics.q_values(batch.next_obs, jnp.asarray(action)), 0)
    distance = np.square(action - np.asarray(batch.extras["next_action"])).sum(1)
    reward, kind = np.asarray(batch.reward), np.arange(ROWS) % 4
    np.testing.assert_allclose(y[kind == 0], reward[kind == 0], rtol=1e-5)
    np.testing.assert_allclose(y[kind == 1], (reward + 0.9 * q)[kind == 1], rtol=1e-4)
    inside = reward + 0.9 * (q - 0.7 * distance)
    np.testing.assert_allclose(y[kind > 1], inside[kind > 1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(far, np.where(kind > 1, distance, 0.0), rtol=1e-4, atol=1e-6)


def test_rebrac_targets_without_critic_penalty_equal_td3():
    state, batch = make(critic_penalty=0.0), batch_of()
    found, _ = rebrac.target(state, batch, jax.random.key(3))
    np.testing.assert_allclose(found, td3.target(state, batch, jax.random.key(3)), rtol=1e-6)


@pytest.mark.slow
def test_rebrac_actor_loss_equals_td3_bc_in_other_units():
    """alpha = 1 / (dim(A) beta), where both critics are one."""
    state, batch, beta = make(), batch_of(), 0.2
    first = state.nets.critics.first
    twins = eqx.tree_at(lambda t: t.second, state.nets.critics, first)
    alpha = 1.0 / (ACTIONS * beta)
    found = jax.grad(rebrac.actor_loss)(state.nets.actor, twins, batch, beta)
    expected = jax.grad(td3bc.actor_loss)(state.nets.actor, twins, batch, alpha)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, beta * ACTIONS * other, rtol=1e-3, atol=1e-6)


def test_rebrac_actor_loss_matches_hand_values():
    state, batch = make(), batch_of()
    action = state.nets.action(batch.obs)
    q = np.min(state.nets.critics.q_values(batch.obs, action), 0)
    distance = np.square(np.asarray(action) - np.asarray(batch.action)).sum(1)
    mask = np.asarray(batch.mask)
    expected = 0.3 * distance[mask].mean() - q[mask].mean() / np.abs(q[mask]).mean()
    found = rebrac.actor_loss(state.nets.actor, state.nets.critics, batch, 0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_rebrac_actor_gradient_is_invariant_to_the_scale_of_q():
    state, batch = make(), batch_of()

    def last(critics):
        layers = [net.layers[-1] for net in (critics.first, critics.second)]
        return [x for layer in layers for x in (layer.weight, layer.bias)]

    large = eqx.tree_at(last, state.nets.critics, [50.0 * x for x in last(state.nets.critics)])
    slopes = [
        jax.grad(rebrac.actor_loss)(state.nets.actor, critics, batch, 0.1)
        for critics in (state.nets.critics, large)
    ]
    for one, other in zip(*(jax.tree.leaves(s) for s in slopes), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)


def test_rebrac_actor_and_targets_update_every_second_update():
    state, batch = make(), batch_of()
    once, _ = learn(state, batch, jax.random.key(0))
    twice, signals = learn(once, batch, jax.random.key(1))
    weight = [s.nets.actor.net.layers[0].weight for s in (state, once, twice)]
    np.testing.assert_array_equal(weight[0], weight[1])
    assert (weight[1] != weight[2]).any()
    slow = [s.target.critics.first.layers[0].weight for s in (state, once, twice)]
    np.testing.assert_array_equal(slow[0], slow[1])
    now = twice.nets.critics.first.layers[0].weight
    np.testing.assert_allclose(slow[2], slow[1] + 0.005 * (now - slow[1]), rtol=1e-5, atol=1e-7)
    assert signals.metrics["policy/distance"] > 0.0


@pytest.mark.slow
def test_rebrac_large_actor_penalty_imitates_the_log():
    batch = batch_of(mask=jnp.ones(ROWS, bool))
    keys = jax.random.split(jax.random.key(0), 1500)
    state = make(actor_penalty=100.0, width=32, lr=3e-3)
    run = jax.jit(lambda s: jax.lax.scan(
        lambda s, k: (rebrac.learn(s, batch, k)[0], None), s, keys)[0])  # fmt: skip
    action, _ = rebrac.act(run(state), batch.obs, jax.random.key(0), False)
    np.testing.assert_allclose(action, batch.action, atol=0.1)


def test_rebrac_needs_next_actions_and_refuses_discrete_spaces():
    needs = rebrac.needs(rebrac.Config(batch=7))
    assert needs.add == ("next_action",)
    assert needs.batch == 7
    with pytest.raises(
        Mistake, match=r"rebrac does not support Discrete\(2\) actions. Use cql, iql or awac"
    ):
        make(spaces.Discrete(2))
    with pytest.raises(Mistake, match=r"rebrac does not support MultiDiscrete.* Use bc"):
        make(spaces.MultiDiscrete([2, 2]))


def test_rebrac_supports_actions_of_any_shape():
    state = make(spaces.Box(-1.0, 1.0, (2, 3), np.float32))
    action = jnp.zeros((ROWS, 2, 3))
    batch = batch_of(action=action, extras={"next_action": action})
    learn(state, batch, jax.random.key(0))
    assert rebrac.act(state, batch.obs, jax.random.key(0), True)[0].shape == (ROWS, 2, 3)
    assert rebrac.value(state, batch.obs).shape == (ROWS,)
