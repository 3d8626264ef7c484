"""SAC-N against SAC and by hand; what diversity adds to it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.offline import edac
from sterling.algorithms.online import sac
from sterling.nets.q_ensemble import TwinCritics
from sterling.types import Mistake, Record, Spec

OBS, ACTIONS, ROWS = 3, 2, 16
BOX = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
FORMS = [BOX, spaces.Discrete(3)]
learn = jax.jit(edac.learn)


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
        extras={"weight": jnp.asarray(rng.uniform(0.2, 1.0, ROWS), jnp.float32)},
    )
    return dataclasses.replace(batch, **changes)


def make(space=BOX, **fields):
    small = {"width": 8, "depth": 1, "lr": 0.01, "alpha": 0.3, "members": 3, "diversity": None}
    config = edac.Config(**{**small, **fields})
    return jax.jit(lambda key: edac.init(key, Spec(VECTOR, space), config))(jax.random.key(0))


def as_twins(ensemble):
    first, second = (jax.tree.map(lambda x, i=i: x[i], ensemble.nets) for i in (0, 1))
    return TwinCritics(ensemble.torso, first, second, ())


@pytest.mark.slow
@pytest.mark.parametrize("space", FORMS, ids=["box", "discrete"])
def test_edac_with_two_members_and_no_diversity_is_sac(space):
    state, batch = make(space, members=2, target_entropy=-1.0), batch_of(space)
    config = sac.Config(width=8, depth=1, lr=0.01, alpha=0.3, target_entropy=-1.0)
    fresh = jax.jit(lambda key: sac.init(key, Spec(VECTOR, space), config))(jax.random.key(0))
    twin = eqx.tree_at(
        lambda s: (s.actor, s.critics, s.target),
        fresh,
        (state.actor, as_twins(state.critics), as_twins(state.target)),
    )
    for index in range(3):
        state, signals = learn(state, batch, jax.random.key(index))
        twin, expected = jax.jit(sac.learn)(twin, batch, jax.random.key(index))
    np.testing.assert_allclose(
        signals.samples["td_error"], expected.samples["td_error"], rtol=1e-4, atol=1e-5
    )
    found = (state.actor, as_twins(state.critics), as_twins(state.target), state.log_alpha)
    others = (twin.actor, twin.critics, twin.target, twin.log_alpha)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_edac_target_is_the_minimum_over_the_ensemble():
    state, batch = make(FORMS[1], members=5), batch_of(FORMS[1])
    y = edac.target(state, batch, jax.random.key(0))
    q = np.asarray(state.target.all_q_values(batch.next_obs)).min(0)
    logits = np.asarray(state.actor.net(batch.next_obs))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    soft = (p * (q - 0.3 * np.log(p))).sum(1)
    expected = np.asarray(batch.reward) + 0.99 * np.asarray(batch.discount) * soft
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_edac_target_draws_a_random_subset_and_actor_uses_the_ensemble_mean():
    state, batch = make(FORMS[1], members=4, subset=1, backup_entropy=False), batch_of(FORMS[1])
    logits = np.asarray(state.actor.net(batch.next_obs))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    each = (p[None] * np.asarray(state.target.all_q_values(batch.next_obs))).sum(-1)
    expected = np.asarray(batch.reward) + 0.99 * np.asarray(batch.discount) * each
    drawn = set()
    for seed in range(12):
        y = np.asarray(edac.target(state, batch, jax.random.key(seed)))
        distance = np.abs(expected - y).max(1)
        drawn.add(int(distance.argmin()))
        assert distance.min() < 1e-5
    assert len(drawn) > 1

    p = np.exp(np.asarray(jax.nn.log_softmax(state.actor.net(batch.obs))))
    q = np.asarray(state.critics.all_q_values(batch.obs)).mean(0)
    values = (p * (q - 0.3 * np.log(p))).sum(1)[np.asarray(batch.mask)]
    loss, _ = edac.actor_loss(state.actor, state, batch, state.critics, jax.random.key(0))
    np.testing.assert_allclose(loss, -values.mean(), rtol=1e-5)


def test_edac_log_std_bounds_are_those_of_the_authors():
    """Theirs are (-5, 2), SAC's (-20, 2)."""
    obs, config = jnp.ones((1, OBS)), sac.Config(width=8, depth=1)
    other = jax.jit(lambda key: sac.init(key, Spec(VECTOR, BOX), config))(jax.random.key(0))
    for actor, low in ((make().actor, -5.0), (other.actor, -20.0)):
        for outputs, bound in ((-100.0, low), (100.0, 2.0)):
            far = jnp.full(2 * ACTIONS, outputs)
            far = eqx.tree_at(lambda actor: actor.net.layers[-1].bias, actor, far)
            np.testing.assert_allclose(far(obs, obs).normal.log_std, bound)


@pytest.mark.slow
def test_edac_zero_diversity_is_the_limit_of_small_diversity():
    batch = batch_of(BOX)
    after = [learn(make(diversity=eta), batch, jax.random.key(0))[0] for eta in (None, 0.0, 1e-6)]
    for other in after[1:]:
        pairs = zip(*(jax.tree.leaves(s.critics) for s in (after[0], other)), strict=True)
        for one, two in pairs:
            np.testing.assert_allclose(one, two, atol=2e-4)


@pytest.mark.slow
def test_edac_critic_loss_matches_finite_differences():
    state, batch = make(diversity=2.0), batch_of(BOX)
    y, mask = jnp.ones(ROWS), np.asarray(batch.mask)
    loss, (metrics, error) = edac.critic_loss(state.critics, batch, y, 2.0)
    q = np.asarray(state.critics.q_values(batch.obs, batch.action))
    weight = np.asarray(batch.extras["weight"])
    squares = 0.5 * (weight * np.square(q - 1.0).sum(0))[mask].mean()
    slopes = []
    for index in range(ACTIONS):
        step = 1e-3 * jax.nn.one_hot(index, ACTIONS)[None]
        ahead, back = (state.critics.q_values(batch.obs, batch.action + s * step) for s in (1, -1))
        slopes.append(np.asarray(ahead - back) / 2e-3)
    slope = np.stack(slopes, -1)
    unit = slope / np.linalg.norm(slope, axis=-1, keepdims=True)
    cosine = np.einsum("irn,jrn->rij", unit, unit)
    alike = (cosine.sum((1, 2)) - np.trace(cosine, axis1=1, axis2=2)) / 2.0
    np.testing.assert_allclose(metrics["value/alikeness"], alike[mask].mean(), atol=2e-2)
    np.testing.assert_allclose(loss, squares + 0.5 * 2.0 * metrics["value/alikeness"], rtol=1e-5)
    np.testing.assert_allclose(error, np.abs(q - 1.0).mean(0), rtol=1e-5)


@pytest.mark.slow
def test_edac_diversity_lowers_gradient_similarity_of_the_ensemble():
    batch, alike = batch_of(BOX), {}
    for eta in (None, 5.0):
        state = make(diversity=eta, members=4, width=16)
        keys = jax.random.split(jax.random.key(0), 200)
        run = jax.jit(lambda s, keys=keys: jax.lax.scan(
            lambda s, k: (edac.learn(s, batch, k)[0], None), s, keys)[0])  # fmt: skip
        critics = run(state).critics
        alike[eta] = edac.critic_loss(critics, batch, jnp.zeros(ROWS), 1.0)[1][0]["value/alikeness"]
    assert alike[5.0] < alike[None] - 0.5


@pytest.mark.slow
def test_edac_learns_with_rlpd_settings():
    state = make(members=10, subset=2, layer_norm=True, backup_entropy=False)
    assert len(state.critics.nets.norms) == 1
    after, signals = learn(state, batch_of(BOX), jax.random.key(0))
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(after))
    assert signals.metrics["value/spread"] > 0.0
    moved = after.critics.nets.norms[0].scale - state.critics.nets.norms[0].scale
    assert jnp.abs(moved).max() > 0.0


@pytest.mark.parametrize(
    ("space", "fields", "words"),
    [
        (spaces.MultiDiscrete([2, 3]), {}, r"edac does not support MultiDiscrete.*Use bc"),
        (FORMS[1], {"diversity": 1.0}, r"Diversity is not defined for Discrete.*diversity=None"),
        (BOX, {"diversity": 1.0, "members": 1}, r"Diversity needs several members.*members=2"),
        (BOX, {"subset": 4}, r"subset=4 must lie between 1 and members=3"),
    ],
)
def test_edac_refuses_invalid_settings_and_spaces(space, fields, words):
    with pytest.raises(Mistake, match=words):
        make(space, **fields)


def test_edac_offline_target_entropy_counts_allowed_actions():
    box, choice = (make(space).actor.actions for space in FORMS)
    obs = jnp.zeros((2, OBS))
    assert edac.offline_target_entropy(box, None, obs) == -2.0
    tenth = edac.offline_target_entropy(choice, None, obs)
    np.testing.assert_allclose(tenth, 0.1 * np.log(3.0), rtol=1e-6)
    np.testing.assert_allclose(edac.offline_target_entropy(choice, 0.7, obs), 0.7, rtol=1e-6)
    mask = jnp.array([[True, True, False], [False, False, True]])
    allowed = edac.offline_target_entropy(choice, None, {"action_mask": mask, "x": obs})
    np.testing.assert_allclose(allowed, [0.1 * np.log(2.0), 0.0], rtol=1e-6)


def test_actions_have_the_shape_of_their_space():
    state = make(spaces.Box(-1.0, 1.0, (2, 3), np.float32))
    obs = jnp.zeros((5, OBS))
    action, _ = edac.act(state, obs, jax.random.key(0), True)
    assert action.shape == (5, 2, 3)
    assert edac.log_prob(state, obs, action).shape == edac.value(state, obs).shape == (5,)
