"""Changed transitions are still transitions; what may not change does not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling.equations import transition_augmentation
from sterling.equations.augmentation_words import check_augmentation, parse_augmentation
from sterling.equations.transition_augmentation import (
    Gaussian,
    Mixup,
    Scaling,
    Symmetry,
    Uniform,
    permutation,
    reflection,
)
from sterling.types import Mistake, Record, Spec

KEY = constant_key(0)
EVERY = ["gaussian:0.1", "uniform:0.1", "scaling:0.5,2", "mixup:0.4", "reflection:-+-/+-"]


def record(rows=400, discrete=False, seed=0):
    """A vector of three, a box of two or a choice of three, the last tenth masked."""
    random = np.random.default_rng(seed)
    action = random.integers(0, 3, rows) if discrete else random.uniform(-1, 1, (rows, 2))
    kind = jnp.int32 if discrete else jnp.float32
    last = jnp.arange(rows) % 7 == 6
    following = jnp.asarray(np.roll(action, -1, 0), kind)
    wide = last if discrete else last[:, None]
    return Record(
        obs=jnp.asarray(random.normal(size=(rows, 3)), jnp.float32),
        action=jnp.asarray(action, kind),
        reward=jnp.asarray(random.normal(size=rows), jnp.float32),
        discount=jnp.ones(rows),
        next_obs=jnp.asarray(random.normal(size=(rows, 3)), jnp.float32),
        last=last,
        mask=jnp.arange(rows) < rows * 9 // 10,
        extras={"next_action": jnp.where(wide, jnp.zeros_like(following), following)},
    )


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("text", EVERY)
def test_transition_augmentation_keeps_other_fields_unchanged(text):
    before = record()
    change = jax.jit(parse_augmentation(text))
    after = change(before, KEY)
    for name in ("reward", "discount", "last", "mask"):
        same(getattr(after, name), getattr(before, name))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), before
    )
    assert not np.array_equal(after.obs, before.obs)
    same(after, change(before, KEY))  # the key decides
    assert not np.array_equal(after.obs, change(before, jax.random.key(1)).obs)


def test_augmentation_noise_is_shared_by_obs_and_next_obs_with_given_scale():
    before = record()
    for change, deviation in ((Gaussian(0.1), 0.1), (Uniform(0.1), 0.1 / 3**0.5)):
        after = change(before, KEY)
        noise = after.obs - before.obs
        np.testing.assert_allclose(noise, after.next_obs - before.next_obs, atol=1e-6)
        assert float(noise.std()) == pytest.approx(deviation, rel=0.1)
        assert abs(float(noise.mean())) < 0.02
        same(after.action, before.action)
    assert float(jnp.abs(Uniform(0.1)(before, KEY).obs - before.obs).max()) <= 0.1 + 1e-6


def test_scaling_augmentation_multiplies_a_row_by_one_factor():
    before = record()
    after = Scaling(0.5, 2.0)(before, KEY)
    factor = after.obs / before.obs
    np.testing.assert_allclose(factor, factor[:, :1].repeat(3, 1), rtol=1e-4)
    np.testing.assert_allclose(after.next_obs, before.next_obs * factor[:, :1], rtol=1e-4)
    assert 0.5 <= float(factor.min()) < 0.6
    assert 1.9 < float(factor.max()) <= 2.0 + 1e-4


def test_mixup_augmentation_moves_the_observation_towards_the_next():
    before = record()
    after = Mixup(0.4)(before, KEY)
    same(after.next_obs, before.next_obs)
    weight = (after.obs - before.next_obs) / (before.obs - before.next_obs)
    np.testing.assert_allclose(weight, weight[:, 1:2].repeat(3, 1), atol=1e-2)
    assert float(weight.min()) > -1e-2
    assert float(weight.max()) < 1.01
    assert float(weight[:, 1].var()) == pytest.approx(0.25 / 1.8, rel=0.2)  # Beta(0.4, 0.4)'s


@pytest.mark.parametrize(
    ("change", "discrete"),
    [
        (reflection((-1, 1, -1), (1, -1), share=1.0), False),
        (permutation((1, 0, 2), (1, 0), share=1.0), False),
        (Symmetry((2, 1, 0), (-1, 1, -1), (1, 0), (-1, -1), 1.0), False),
        (Symmetry((), (-1, -1, 1), (0, 2, 1), (), 1.0), True),
    ],
    ids=["reflection", "permutation", "both", "choices"],
)
def test_symmetry_augmentation_applied_twice_is_the_identity(change, discrete):
    before = record(discrete=discrete)
    once = change(before, KEY)
    assert not np.array_equal(once.obs, before.obs)
    assert not np.array_equal(once.action, before.action)
    same(change(once, KEY), before)


def test_permutation_augmentation_of_three_is_not_its_own_inverse():
    turn = permutation((1, 2, 0), share=1.0)
    before = record()
    np.testing.assert_array_equal(turn(before, KEY).obs[:, 0], before.obs[:, 1])
    same(turn(turn(turn(before, KEY), KEY), KEY).obs, before.obs)


def test_symmetry_augmentation_changes_a_share_of_whole_rows():
    before = record()
    after = reflection((-1, -1, -1), (-1, -1), share=0.25)(before, KEY)
    turned = np.asarray(after.obs[:, 0] != before.obs[:, 0])
    assert 0.15 < turned.mean() < 0.35
    sign = np.where(turned, -1.0, 1.0)[:, None].astype(np.float32)
    for name in ("obs", "action", "next_obs"):
        same(getattr(after, name), getattr(before, name) * sign)
    same(after.extras["next_action"], before.extras["next_action"] * sign)


def test_symmetry_augmentation_changes_all_steps_of_a_sequence_together():
    rows = record(rows=360)
    rows = jax.tree.map(lambda x: x.reshape(60, 6, *x.shape[1:]), rows)  # batch, time
    after = reflection((-1, 1, 1))(rows, KEY)
    turned = np.asarray(after.obs[..., 0] != rows.obs[..., 0])
    assert (turned == turned[..., :1]).all()
    assert 0.2 < turned.mean() < 0.8


def test_symmetry_augmentation_of_a_linear_system_keeps_its_dynamics():
    """Two carts on springs, mirrored and exchanged: x' = A x + B u."""
    coupling, push = np.array([[0.8, 0.1], [0.1, 0.8]]), 0.3 * np.eye(2)
    random = np.random.default_rng(0)
    obs, action = random.normal(size=(2, 50, 2))

    def follows(x, u):
        return x @ coupling.T + u @ push.T

    one = dataclasses.replace(
        record(50),
        obs=jnp.asarray(obs, jnp.float32),
        action=jnp.asarray(action, jnp.float32),
        next_obs=jnp.asarray(follows(obs, action), jnp.float32),
        extras={},
    )
    for text in ("reflection:--/--", "permutation:1,0/1,0", "permutation:-1,-0/-1,-0"):
        made = parse_augmentation(text)(one, KEY)
        assert not np.array_equal(made.obs, one.obs)
        np.testing.assert_allclose(follows(made.obs, made.action), made.next_obs, atol=1e-6)
    wrong = parse_augmentation("reflection:-+/-+")(one, KEY)  # no symmetry of it
    assert np.abs(follows(wrong.obs, wrong.action) - wrong.next_obs).max() > 0.1


def test_symmetry_augmentation_permutes_discrete_actions():
    before = record(discrete=True)
    after = Symmetry((), (-1,) * 3, (1, 0, 2), (), 1.0)(before, KEY)
    np.testing.assert_array_equal(after.action, np.array([1, 0, 2])[before.action])
    assert not after.extras["next_action"][before.last].any()
    going = ~np.asarray(before.last)
    expected = np.array([1, 0, 2])[np.asarray(before.extras["next_action"])]
    np.testing.assert_array_equal(np.asarray(after.extras["next_action"])[going], expected[going])


def test_augmentation_words_parse_to_transition_augmentations():
    assert parse_augmentation("gaussian") == Gaussian(3e-4)
    assert parse_augmentation("gaussian:0.0003") == Gaussian(0.0003)
    assert parse_augmentation("scaling:0.6,1.4") == Scaling(0.6, 1.4)
    assert parse_augmentation("reflection:-+/+") == reflection((-1, 1), (1,))
    assert parse_augmentation("permutation:-0,-1/1,0") == Symmetry((0, 1), (-1, -1), (1, 0), ())
    assert hash(parse_augmentation("permutation:1,0")) == hash(permutation((1, 0)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gausian:1", "Unknown augmentation 'gausian'; did you mean gaussian"),
        ("warp", "Unknown augmentation 'warp'; use one of gaussian, uniform"),
        ("gaussian:wide", "Write gaussian:SIGMA"),
        ("scaling:1,2,3", "Write scaling:LOW,HIGH"),
        ("reflection:-*/+", "Write reflection:SIGNS/SIGNS"),
        ("permutation:1,a", "Write permutation:ORDER/ORDER"),
        ("permutation:1,1", "name every index from 0 once"),
        ("gaussian:-1", "sigma must be at least 0 and finite, not -1"),
        ("uniform:nan", "alpha must be at least 0 and finite, not nan"),
        ("scaling:2,1", "LOW at most HIGH, not 2"),
        ("mixup:0", "alpha must be above 0 and finite, not 0"),
    ],
)
def test_augmentation_words_refuse_wrong_names(text, said):
    with pytest.raises(Mistake, match=said) as caught:
        parse_augmentation(text)
    assert "\n" not in str(caught.value)


def test_transition_augmentation_refuses_other_than_float_vectors():
    vector = spaces.Box(-1, 1, (3,), np.float32)
    fine = Spec(vector, spaces.Box(-1, 1, (2,), np.float32))
    choices = Spec(vector, spaces.Discrete(3))
    for text in EVERY:
        check_augmentation(parse_augmentation(text), fine)
        for obs in (spaces.Dict({"a": vector}), spaces.Box(0, 255, (3,), np.uint8)):
            with pytest.raises(Mistake, match="vectors of floats"):
                check_augmentation(parse_augmentation(text), Spec(obs, fine.action))
        with pytest.raises(Mistake, match="vectors of floats"):
            parse_augmentation(text)(dataclasses.replace(record(), obs={"a": record().obs}), KEY)
    with pytest.raises(Mistake, match="has 2 observations, the environment has 3"):
        check_augmentation(parse_augmentation("reflection:-+"), fine)
    with pytest.raises(Mistake, match="has 2 choices, the environment has 3"):
        check_augmentation(parse_augmentation("permutation:0,1,2/1,0"), choices)
    for spec, before in ((choices, record(discrete=True)),):
        with pytest.raises(Mistake, match="actions have no sign"):
            check_augmentation(parse_augmentation("reflection:-++/-++"), spec)
        with pytest.raises(Mistake, match="actions have no sign"):
            parse_augmentation("reflection:-++/-++")(before, KEY)
    with pytest.raises(Mistake, match="has 3 actions, the environment has 2"):
        transition_augmentation.reflection((-1, 1, 1), (1, 1, 1))(record(), KEY)


def test_symmetry_augmentation_refuses_actions_that_are_no_vector():
    """Neither several arrays nor one of more axes."""
    change, plain = permutation((1, 0, 2), (1, 0)), record()
    for action in ({"a": plain.action}, jnp.stack([plain.action] * 2, -1)):
        with pytest.raises(Mistake, match="one choice or one vector"):
            change(dataclasses.replace(plain, action=action, extras={}), KEY)
