"""IQL by numbers worked out on paper: networks without hidden layers, whose biases are all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling.algorithms.offline import iql
from sterling.types import Log, Mistake, Record, Spec

CHOICES, OBS = spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (3,), np.float32)
KEY = constant_key(0)
FIELDS = {"depth": 0, "gamma": 0.5, "lr": 0.1, "tau": 0.1, "expectile": 0.8, "beta": 1.0}
learn = jax.jit(iql.learn)


def make(space=CHOICES, log=None, **fields):
    config = iql.Config(**{**FIELDS, "most": 2.0, **fields})
    return iql.init(KEY, Spec(OBS, space, iterations=10, log=log), config)


def fixed(**fields):
    """Everywhere: Q = (1.5, 2.5) and (2.5, 3.5), Q' = (1, 4) and (2, 3), V = 2, pi = (1/4, 3/4);
    5 of 10 updates are made."""

    def nets(state):
        pairs = (state.critics.first, state.critics.second, state.target.first)
        return (*pairs, state.target.second, state.value, state.policy.net)

    state = make(**fields)
    biases = [[1.5, 2.5], [2.5, 3.5], [1.0, 4.0], [2.0, 3.0], [2.0], np.log([0.25, 0.75])]
    for place, bias in enumerate(biases):
        state = eqx.tree_at(
            lambda s, i=place: nets(s)[i].layers[0].bias, state, jnp.asarray(bias, jnp.float32)
        )
    return eqx.tree_at(lambda s: s.updates, state, jnp.int32(5))


def batch_of(action=(0, 1, 1), reward=(1.0, 2.0, 99.0)):
    """Two rows that count, the second an end, and a third without a mask. Observations are 0, so
    that only biases are learned."""
    return Record(
        obs=jnp.zeros((3, 3)),
        action=jnp.asarray(action),
        reward=jnp.asarray(reward),
        discount=jnp.array([1.0, 0.0, 1.0]),
        next_obs=jnp.zeros((3, 3)),
        last=jnp.array([False, True, False]),
        mask=jnp.array([True, True, False]),
    )


def bias(net):
    return net.layers[0].bias


def test_losses_by_hand():
    _, signals = learn(fixed(), batch_of(), KEY)
    found = signals.metrics
    # u = min Q' - V = (1, 3) - 2 = (-1, 1): the lower side counts 0.2, the upper 0.8
    np.testing.assert_allclose(found["loss/v"], (0.2 + 0.8) / 2, rtol=1e-6)
    np.testing.assert_allclose(found["value/v"], 2.0, rtol=1e-6)
    # weights e^-1, and e^1 cut at 2
    weights = np.array([np.exp(-1.0), 2.0])
    np.testing.assert_allclose(found["policy/weight"], weights.mean(), rtol=1e-6)
    cost = -(weights * np.log([0.25, 0.75])).mean()
    np.testing.assert_allclose(found["loss/policy"], cost, rtol=1e-6)
    # V rises by the step size to 2.1, so y = (1 + 0.5 * 2.1, 2): the end bootstraps from nothing
    errors = np.array([[1.5 - 2.05, 2.5 - 2.0], [2.5 - 2.05, 3.5 - 2.0]])
    np.testing.assert_allclose(found["loss/value"], 0.5 * (errors**2).sum(0).mean(), rtol=1e-6)
    np.testing.assert_allclose(signals.samples["td_error"][:2], np.abs(errors).mean(0), rtol=1e-5)


def test_iql_first_update_steps_match_hand_values():
    """Adam's first step is the step size against the gradient's sign, whatever its size."""
    after, _ = learn(fixed(), batch_of(), KEY)
    close = {"rtol": 1e-4}
    # dL/dV = mean(-2 * 0.2 * -1, -2 * 0.8 * 1) < 0
    np.testing.assert_allclose(bias(after.value), [2.1], **close)
    # the first critic is below y for choice 0 and above for choice 1, the second above for both
    np.testing.assert_allclose(bias(after.critics.first), [1.6, 2.4], **close)
    np.testing.assert_allclose(bias(after.critics.second), [2.4, 3.4], **close)
    np.testing.assert_allclose(bias(after.target.first), [1.06, 3.84], **close)
    np.testing.assert_allclose(bias(after.target.second), [2.04, 3.04], **close)
    # the policy's step has half its size in the middle of the run; the better choice gains
    moved = bias(after.policy.net) - np.log([0.25, 0.75])
    np.testing.assert_allclose(moved, [-0.05, 0.05], rtol=1e-3)
    assert after.updates == 6


def test_iql_policy_learning_rate_is_constant_without_annealing():
    after, _ = learn(fixed(anneal=False), batch_of(), KEY)
    moved = bias(after.policy.net) - np.log([0.25, 0.75])
    np.testing.assert_allclose(moved, [-0.1, 0.1], rtol=1e-3)


def test_iql_annealed_policy_learning_rate_stays_at_zero_past_the_plan():
    for updates in (10, 15, 20):  # of 10
        state = eqx.tree_at(lambda s: s.updates, fixed(), jnp.int32(updates))
        np.testing.assert_allclose(iql.policy_lr(state), 0.0, atol=1e-7)


@pytest.mark.parametrize(("expectile", "value"), [(0.5, 2.0), (0.8, 2.6), (0.95, 2.9)])
def test_iql_value_is_the_expectile_of_the_logged_actions(expectile, value):
    """Of targets 1 and 3: tau (3 - v) = (1 - tau) (v - 1), so v = 1 + 2 tau."""
    state = fixed(expectile=expectile, tau=0.0)

    def step(_, state):
        return iql.learn(state, batch_of(), KEY)[0]

    after = jax.jit(lambda state: jax.lax.fori_loop(0, 150, step, state))(state)
    np.testing.assert_allclose(bias(after.value), [value], atol=0.02)


def test_iql_rewards_are_scaled_by_the_return_range_of_the_log():
    log = Log(np.zeros(3), np.ones(3), (0.0, 1.0), (-100.0, 400.0), 9)
    assert make(log=log, scale_reward=True).reward_scale == 2.0
    assert make(log=log).reward_scale == 1.0
    state = eqx.tree_at(lambda s: s.reward_scale, fixed(), jnp.float32(3.0))
    _, signals = learn(state, batch_of(), KEY)
    errors = np.array([[1.5 - 4.05, 2.5 - 6.0], [2.5 - 4.05, 3.5 - 6.0]])
    np.testing.assert_allclose(signals.samples["td_error"][:2], np.abs(errors).mean(0), rtol=1e-5)


def test_iql_value_action_value_and_act_match_fixed_networks():
    state, obs = fixed(), jnp.zeros((2, 3))
    np.testing.assert_allclose(iql.value(state, obs), [2.0, 2.0])
    np.testing.assert_allclose(iql.action_value(state, obs, jnp.array([0, 1])), [1.5, 2.5])
    found = iql.log_prob(state, obs, jnp.array([0, 1]))
    np.testing.assert_allclose(found, np.log([0.25, 0.75]), rtol=1e-6)
    assert (iql.act(state, obs, KEY, False)[0] == 1).all()
    drawn = iql.act(state, jnp.zeros((4000, 3)), KEY, True)[0]
    np.testing.assert_allclose(drawn.mean(), 0.75, atol=0.03)


def test_several_choices_are_a_mistake():
    with pytest.raises(Mistake, match=r"iql does not support MultiDiscrete.*Use bc"):
        make(spaces.MultiDiscrete([2, 3]))
