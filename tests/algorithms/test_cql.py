"""CQL against SAC where it is SAC, and its gap against a plain second writing."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.offline import cql
from sterling.algorithms.online import sac
from sterling.types import Mistake, Record, Spec

OBS, ACTIONS, ROWS = 3, 2, 16
BOX = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
FORMS = [BOX, spaces.Discrete(3)]


def batch_of(space, **changes):
    rng = np.random.default_rng(0)
    obs, following = (jnp.asarray(rng.normal(size=(ROWS, OBS)), jnp.float32) for _ in range(2))
    if isinstance(space, spaces.Discrete):
        action = jnp.asarray(rng.integers(3, size=ROWS), jnp.int32)
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


def make(module, space, **fields):
    config = module.Config(**{"width": 8, "depth": 1, "lr": 0.01, "alpha": 0.3, **fields})
    spec = Spec(VECTOR, space)
    return jax.jit(lambda key: module.init(key, spec, config))(jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("space", FORMS, ids=["box", "discrete"])
def test_cql_with_zero_penalty_equals_sac(space):
    """Every network, target and temperature, over several updates."""
    batch = batch_of(space)
    one = make(cql, space, penalty=0.0, actor_lr=0.01, backup_entropy=True, target_entropy=-1.0)
    other = make(sac, space, target_entropy=-1.0)
    for index in range(3):
        key = jax.random.key(index)
        one, _ = jax.jit(cql.learn)(one, batch, key)
        other, _ = jax.jit(sac.learn)(other, batch, key)
    for name in ("actor", "critics", "target", "log_alpha"):
        pairs = zip(*(jax.tree.leaves(getattr(s, name)) for s in (one, other)), strict=True)
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=name)


def plain(net, x):
    for index, layer in enumerate(net.layers):
        x = x @ np.asarray(layer.weight) + np.asarray(layer.bias)
        x = x if index == len(net.layers) - 1 else np.maximum(x, 0.0)
    return x


@pytest.mark.slow
def test_cql_conservative_gap_for_discrete_actions_matches_hand_values():
    batch, state = batch_of(FORMS[1]), make(cql, FORMS[1])
    assert cql.sample_actions(state, batch, jax.random.key(0)) is None
    found = cql.conservative_gaps(state.critics, batch, None, state.config)
    for index, net in enumerate((state.critics.first, state.critics.second)):
        q = plain(net, np.asarray(batch.obs))
        expected = np.log(np.exp(q).sum(1)) - q[np.arange(ROWS), np.asarray(batch.action)]
        np.testing.assert_allclose(found[index], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_cql_conservative_gap_for_continuous_actions_matches_hand_values():
    batch, state = batch_of(BOX), make(cql, BOX, n_actions=4)
    drawn = cql.sample_actions(state, batch, jax.random.key(5))
    actions, log_density = (np.asarray(x) for x in drawn)
    assert actions.shape == (12, ROWS, ACTIONS)
    np.testing.assert_allclose(log_density[:4], np.log(0.25))  # one half for each number
    for kind, obs in ((slice(4, 8), batch.obs), (slice(8, 12), batch.next_obs)):
        mean, log_std = np.split(plain(state.actor.net, np.asarray(obs)), 2, 1)
        raw, std = np.arctanh(np.clip(actions[kind], -1 + 1e-6, 1 - 1e-6)), np.exp(log_std)
        log_p = -0.5 * ((raw - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
        log_p = (log_p - np.log(1 - np.tanh(raw) ** 2)).sum(-1)
        inside = np.abs(actions[kind]).max(-1) < 0.999
        np.testing.assert_allclose(log_density[kind][inside], log_p[inside], atol=2e-3)
    found = cql.conservative_gaps(state.critics, batch, drawn, state.config)
    obs = np.asarray(batch.obs)
    for index, net in enumerate((state.critics.first, state.critics.second)):
        wide = np.concatenate([np.broadcast_to(obs, (12, ROWS, OBS)), actions], -1)
        q = plain(net, wide)[..., 0]
        logged = plain(net, np.concatenate([obs, np.asarray(batch.action)], 1))[:, 0]
        expected = np.log(np.mean(np.exp(q - log_density), 0)) - logged
        np.testing.assert_allclose(found[index], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("space", FORMS, ids=["box", "discrete"])
def test_cql_critic_loss_adds_half_the_penalty_times_both_gaps(space):
    batch, state = batch_of(space), make(cql, space, penalty=3.0)
    drawn, y = cql.sample_actions(state, batch, jax.random.key(0)), jnp.ones(ROWS)
    loss, (metrics, _) = cql.critic_loss(state.critics, state, batch, y, drawn)
    gap = np.asarray(cql.conservative_gaps(state.critics, batch, drawn, state.config))
    mask = np.asarray(batch.mask)
    expected = sac.critic_loss(state.critics, batch, y)[0] + 1.5 * gap[:, mask].mean(1).sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["value/gap"], gap[:, mask].mean(), rtol=1e-5)


def test_cql_target_has_no_entropy_unless_backup_entropy():
    batch = batch_of(FORMS[1])
    y = {b: cql.target(make(cql, FORMS[1], backup_entropy=b), batch, jax.random.key(0))
         for b in (False, True)}  # fmt: skip
    state = make(cql, FORMS[1])
    logits = plain(state.actor.net, np.asarray(batch.next_obs))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    more = 0.3 * -(p * np.log(p)).sum(1) * 0.99 * np.asarray(batch.discount)
    np.testing.assert_allclose(y[True] - y[False], more, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("target_gap", "sign"), [(-50.0, 1.0), (50.0, -1.0)])
def test_cql_lagrange_multiplier_follows_the_conservative_gap(target_gap, sign):
    state = make(cql, FORMS[1], target_gap=target_gap, penalty=2.0)
    np.testing.assert_allclose(jnp.exp(state.log_penalty), 2.0, rtol=1e-6)
    after, _ = jax.jit(cql.learn)(state, batch_of(FORMS[1]), jax.random.key(0))
    assert sign * (after.log_penalty - state.log_penalty) > 0.0


def test_cql_temperature_uses_the_actor_learning_rate():
    """As in the authors' code; Adam's first step is as long as the step size."""
    state = make(cql, BOX, lr=0.01, actor_lr=0.003, target_gap=1.0)
    after, _ = jax.jit(cql.learn)(state, batch_of(BOX), jax.random.key(0))
    moved = [
        abs(float(getattr(after, x) - getattr(state, x))) for x in ("log_alpha", "log_penalty")
    ]
    np.testing.assert_allclose(moved, [0.003, 0.01], rtol=1e-3)


def test_cql_lagrange_multiplier_is_capped_for_unreachable_gap():
    state = make(cql, FORMS[1], target_gap=-50.0, penalty=2.0, lr=10.0)
    for index in range(3):
        state, _ = jax.jit(cql.learn)(state, batch_of(FORMS[1]), jax.random.key(index))
    np.testing.assert_allclose(jnp.exp(state.log_penalty), 1e6, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("space", FORMS, ids=["box", "discrete"])
def test_cal_ql_with_unknown_return_equals_cql(space):
    unknown = batch_of(space, extras={"monte_carlo": jnp.full(ROWS, -jnp.inf)})
    found = []
    for calibrated in (True, False):
        state = make(cql, space, calibrated=calibrated)
        found.append(jax.jit(cql.learn)(state, unknown, jax.random.key(0))[0])
    state = eqx.tree_at(lambda s: s.config, found[0], found[1].config)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(found[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_cal_ql_never_pushes_policy_actions_below_the_logged_return():
    """Above every Q lies the return: only uniform actions are pushed down, not the policy's."""
    batch = batch_of(BOX, extras={"monte_carlo": jnp.full(ROWS, 40.0)})
    state = make(cql, BOX, calibrated=True, n_actions=4)
    actions, log_density = cql.sample_actions(state, batch, jax.random.key(0))

    def gap(actions):
        return cql.conservative_gaps(
            state.critics, batch, (actions, log_density), state.config
        ).sum()

    pushed = np.abs(jax.grad(gap)(actions)).max((1, 2))
    assert (pushed[4:] == 0.0).all()
    known = dataclasses.replace(batch, extras={"monte_carlo": jnp.full(ROWS, -40.0)})
    below = jax.grad(
        lambda a: cql.conservative_gaps(state.critics, known, (a, log_density), state.config).sum()
    )
    assert (np.abs(below(actions)).max((1, 2)) > 0.0).all()


@pytest.mark.parametrize("calibrated", [False, True])
def test_cal_ql_keeps_values_at_the_logged_returns(calibrated):
    """One state, the log holds choice 0, worth 1, and the world ends. A penalty drives the other
    choices from where they begin (about 5) below every bound; with returns known, down to 1."""
    batch = batch_of(
        FORMS[1],
        obs=jnp.ones((ROWS, OBS)),
        action=jnp.zeros(ROWS, jnp.int32),
        reward=jnp.ones(ROWS),
        discount=jnp.zeros(ROWS),
        extras={"monte_carlo": jnp.ones(ROWS)},
    )
    state = make(cql, FORMS[1], calibrated=calibrated, depth=0, lr=2e-3)
    state = eqx.tree_at(
        lambda s: [s.critics.first.layers[0].bias, s.critics.second.layers[0].bias],
        state,
        [jnp.full(3, 5.0)] * 2,
    )
    keys = jax.random.split(jax.random.key(0), 5000)
    run = jax.jit(
        lambda s: jax.lax.scan(lambda s, k: (cql.learn(s, batch, k)[0], None), s, keys)[0]
    )
    q = jnp.stack(run(state).critics.all_q_values(jnp.ones((1, OBS))))[:, 0, 1:]
    if calibrated:
        np.testing.assert_allclose(q, 1.0, atol=0.1)
    else:
        assert (q < 0.0).all()


def test_cql_does_not_push_down_masked_actions():
    batch, state = batch_of(FORMS[1]), make(cql, FORMS[1])
    mask = jnp.broadcast_to(jnp.array([1, 0, 1], jnp.int8)[None], (ROWS, 3))
    masked = dataclasses.replace(
        batch, obs={"action_mask": mask, "rest": batch.obs}, action=jnp.zeros(ROWS, jnp.int32)
    )
    found = cql.conservative_gaps(state.critics, masked, None, state.config)
    q = plain(state.critics.first, np.asarray(batch.obs))
    expected = np.log(np.exp(q[:, 0]) + np.exp(q[:, 2])) - q[:, 0]
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


def test_cql_needs_monte_carlo_returns_if_calibrated_and_refuses_multidiscrete():
    assert cql.needs(cql.Config()).monte_carlo is None
    assert cql.needs(cql.Config(calibrated=True, gamma=0.9)).monte_carlo == 0.9
    with pytest.raises(Mistake, match=r"cql does not support MultiDiscrete.*Use bc"):
        make(cql, spaces.MultiDiscrete([2, 3]))


def test_actions_have_the_shape_of_their_space():
    state = make(cql, spaces.Box(-1.0, 1.0, (2, 3), np.float32))
    obs = jnp.zeros((5, OBS))
    action, _ = cql.act(state, obs, jax.random.key(0), True)
    assert action.shape == (5, 2, 3)
    assert cql.log_prob(state, obs, action).shape == cql.value(state, obs).shape == (5,)
