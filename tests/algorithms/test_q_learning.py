"""Learners of distributions of returns: their losses against rlax, masks, noise, and refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from gymnasium import spaces

from sterling.algorithms.online import dqn
from sterling.algorithms.q_learning import bbf, c51, iqn, munchausen_dqn, qr_dqn, rainbow, spr
from sterling.equations.quantile_losses import quantile_middles
from sterling.types import Mistake, Record, Spec

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
ATOMS = {"atoms": 7, "v_min": -2.0, "v_max": 3.0}
SMALL = {
    qr_dqn: {"quantiles": 5, "exploration_initial": 0.4},
    c51: {**ATOMS, "exploration_initial": 0.4},
    rainbow: ATOMS,
    spr: ATOMS,
    bbf: {**ATOMS, "exploration_initial": 0.4, "exploration_final": 0.4},
    iqn: {"cosines": 5, "policy_quantiles": 6, "exploration_initial": 0.4},
    munchausen_dqn: {"exploration_initial": 0.4},
}
LATER = (spr, bbf)  # acting is rainbow's and dqn's
ALL = pytest.mark.parametrize(
    "module",
    [pytest.param(x, marks=pytest.mark.slow) if x in LATER else x for x in SMALL],
    ids=lambda module: module.__name__.split(".")[-1],
)


def agent(module, obs=VECTOR, seed=0, **fields):
    config = module.Config(**{"width": 16, "batch": 8, **SMALL[module], **fields})
    return module.init(jax.random.key(seed), Spec(obs, spaces.Discrete(4), envs=2), config)


def transitions(rows=8):
    rng = np.random.default_rng(1)
    look = (jnp.asarray(rng.normal(size=(rows, 3)), jnp.float32) for _ in range(2))
    return Record(
        obs=next(look),
        action=jnp.asarray(rng.integers(4, size=rows), jnp.int32),
        reward=jnp.asarray(rng.normal(size=rows) * 2, jnp.float32),
        discount=jnp.asarray(rng.random(rows) < 0.7, jnp.float32),
        next_obs=next(look),
        last=jnp.zeros(rows, bool),
        mask=jnp.ones(rows, bool),
    )


def by_rlax(loss, *arguments):
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return jax.vmap(loss)(*arguments).mean()


@pytest.mark.parametrize("double", [False, True])
def test_qr_dqn_quantile_loss_equals_rlax(double):
    state = agent(qr_dqn, double=double, huber=0.7)
    state = dataclasses.replace(state, target=agent(qr_dqn, seed=1).net)
    batch = transitions()
    _, signals = jax.jit(qr_dqn.learn)(state, batch, jax.random.key(0))

    def quantiles(net, obs):  # rlax: (quantile, action)
        return net.all_quantiles(obs).swapaxes(1, 2)

    following = quantiles(state.target, batch.next_obs)
    chooser = quantiles(state.net, batch.next_obs) if double else following
    shares = jnp.broadcast_to(quantile_middles(5), (8, 5))
    here = quantiles(state.net, batch.obs), shares, batch.action, batch.reward
    expected = by_rlax(
        lambda *x: rlax.quantile_q_learning(*x, huber_param=0.7),
        *(*here, 0.99 * batch.discount, chooser, following),
    )
    np.testing.assert_allclose(signals.metrics["loss/value"], expected, rtol=1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_c51_categorical_loss_equals_rlax(double):
    state = agent(c51, double=double)
    state = dataclasses.replace(state, target=agent(c51, seed=1).net)
    batch = transitions()
    _, signals = jax.jit(c51.learn)(state, batch, jax.random.key(0))
    support = jnp.broadcast_to(jnp.linspace(-2.0, 3.0, 7), (8, 7))
    here = support, state.net(batch.obs), batch.action, batch.reward, 0.99 * batch.discount
    following = support, state.target(batch.next_obs)
    if double:
        chooser = c51.q_values(state.net(batch.next_obs), state.config)
        expected = by_rlax(rlax.categorical_double_q_learning, *here, *following, chooser)
    else:
        expected = by_rlax(rlax.categorical_q_learning, *here, *following)
    np.testing.assert_allclose(signals.metrics["loss/value"], expected, rtol=1e-5)


def q_of(module, state, obs):
    """Q as evaluation sees it."""
    if module is iqn:
        return iqn.q_values(state.net, obs, 6)
    plain = module in (qr_dqn, munchausen_dqn)
    return state.net(obs) if plain else c51.q_values(state.net(obs), state.config)


@ALL
def test_distributional_q_masked_actions_are_neither_taken_nor_valued(module):
    space = spaces.Dict({"obs": VECTOR, "action_mask": spaces.MultiBinary(4)})
    state = agent(module, space)
    mask = jnp.broadcast_to(jnp.asarray([[0, 1, 0, 1]], jnp.int8), (500, 4))
    obs = {"obs": jax.random.normal(jax.random.key(3), (500, 3)), "action_mask": mask}
    for explore in (True, False):
        action, _ = module.act(state, obs, jax.random.key(1), explore)
        assert set(np.unique(action)) <= {1, 3}
    q = q_of(module, state, obs)
    np.testing.assert_allclose(module.value(state, obs), jnp.maximum(q[:, 1], q[:, 3]))
    chances = module.log_prob(state, obs, action)
    np.testing.assert_array_equal(chances, jnp.zeros(500))


@ALL
def test_distributional_q_evaluation_is_deterministic_and_exploration_random(module):
    state, obs = agent(module), jnp.broadcast_to(jnp.asarray([[0.3, -1.0, 2.0]]), (2000, 3))
    keys = jax.random.key(0), jax.random.key(1)
    greedy = [module.act(state, obs, key, False)[0] for key in keys]
    np.testing.assert_array_equal(*greedy)
    best = int(q_of(module, state, obs)[0].argmax())
    assert np.unique(greedy[0]).tolist() == [best]
    explored = [np.asarray(module.act(state, obs, key, True)[0]) for key in keys]
    assert (explored[0] != explored[1]).any()
    if module not in (rainbow, spr, iqn):  # epsilon is 0.4, and nothing else is random
        np.testing.assert_allclose(np.mean(explored[0] == best), 0.7, atol=0.04)


def test_iqn_random_quantiles_average_to_the_quantile_midpoints():
    state, obs = agent(iqn), jnp.asarray([[0.3, -1.0, 2.0]])
    drawn = iqn.q_values(state.net, obs, 20_000, jax.random.key(0))
    np.testing.assert_allclose(drawn, iqn.q_values(state.net, obs, 500), atol=0.01)


def test_munchausen_dqn_without_bonus_and_temperature_is_dqn():
    state = agent(munchausen_dqn, alpha=0.0, temperature=1e-5)
    other = agent(munchausen_dqn, seed=1).net
    batch, plain = transitions(), dqn.Config(huber=float("inf"))
    expected, (_, error) = dqn.loss(state.net, other, batch, plain)
    found, (_, told) = munchausen_dqn.loss(state.net, other, batch, state.config)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(told, error, rtol=1e-4, atol=1e-4)


def test_munchausen_bonus_is_clipped_on_both_sides():
    """The likeliest action's bonus is near 0, and no bonus is below alpha l0."""
    state, batch = agent(munchausen_dqn, temperature=0.5), transitions()
    q = state.net(batch.obs)
    best = dataclasses.replace(batch, action=q.argmax(-1).astype(jnp.int32))
    _, (metrics, _) = munchausen_dqn.loss(state.net, state.net, best, state.config)
    assert -0.9 * 0.5 * np.log(4.0) <= float(metrics["value/bonus"]) <= 0.0
    sharp = agent(munchausen_dqn, temperature=1e-4)
    worst = dataclasses.replace(batch, action=q.argmin(-1).astype(jnp.int32))
    far = jax.tree.map(lambda x: 100.0 * x, sharp.net)
    _, (metrics, _) = munchausen_dqn.loss(sharp.net, far, worst, sharp.config)
    np.testing.assert_allclose(metrics["value/bonus"], -0.9, rtol=1e-5)


def test_rainbow_draws_new_noise_in_every_update_for_each_network():
    """With the target equal to the network and nothing learned yet, only noise tells them apart."""
    state, batch = agent(rainbow, lr=0.0), transitions()
    learn = jax.jit(rainbow.learn)
    losses = [learn(state, batch, jax.random.key(seed))[1].metrics["loss/value"] for seed in (0, 1)]
    assert losses[0] != losses[1]
    silent = agent(rainbow, lr=0.0, sigma=0.0)
    losses = [learn(silent, batch, jax.random.key(at))[1].metrics["loss/value"] for at in (0, 1)]
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.slow
def test_rainbow_trains_convolutional_encoder_on_pictures():
    space = spaces.Box(0, 255, (4, 36, 36), np.uint8)
    state = agent(rainbow, space, width=8)
    obs = jax.random.randint(jax.random.key(0), (8, 4, 36, 36), 0, 256).astype(jnp.uint8)
    batch = dataclasses.replace(transitions(), obs=obs, next_obs=obs[::-1])
    learned, _ = jax.jit(rainbow.learn)(state, batch, jax.random.key(1))
    kernels = [s.net.torso.parts[0].layers[0].weight for s in (state, learned)]
    assert not np.array_equal(*kernels)


@ALL
def test_distributional_q_refuses_other_action_spaces(module):
    name = module.__name__.split(".")[-1].replace("_", "-")
    for space in (spaces.Box(-1.0, 1.0, (2,)), spaces.MultiDiscrete([2, 2])):
        with pytest.raises(Mistake, match=rf"{name} does not support .* actions. Use "):
            module.init(jax.random.key(0), Spec(VECTOR, space), module.Config())


@pytest.mark.parametrize("module", [c51, rainbow, spr, bbf])
def test_categorical_q_refuses_an_empty_value_support(module):
    with pytest.raises(Mistake, match="v_min=3 must be below v_max=3"):
        agent(module, v_min=3.0)
    with pytest.raises(Mistake, match=r"atoms=1 is no distribution\. Set atoms"):
        agent(module, atoms=1)
