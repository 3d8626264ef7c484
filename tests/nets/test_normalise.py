"""Observations and rewards scaled by what is known of a log, and by what rollouts have shown."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array
from gymnasium import spaces

from sterling.equations.running_moments import Moments
from sterling.experience.rollouts.whole_episodes import ObsMoments
from sterling.nets.running_statistics import ObsNormaliser, ReturnScale, RewardNormaliser
from sterling.training.saving import checkpoint
from sterling.types import Log, Mistake, Spec

PLAIN = Spec(spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2))
MEAN, STD = np.array([100.0, -2.0], np.float32), np.array([5.0, 0.5], np.float32)
LOGGED = dataclasses.replace(PLAIN, log=Log(MEAN, STD, (0.0, 1.0), (0.0, 1.0), 10))
FAR = constant_array([[0.0, 500.0], [-500.0, 12.5]])
GAMMA, STEPS, ENVS = 0.9, 9, 3


def test_obs_normaliser_without_a_log_is_the_identity():
    """Positions from 0 to 500 stay apart."""
    np.testing.assert_array_equal(ObsNormaliser.of_log(PLAIN)(FAR), FAR)


def test_obs_normaliser_of_a_log_does_not_clip():
    found = ObsNormaliser.of_log(LOGGED)(FAR)
    np.testing.assert_allclose(found, (np.asarray(FAR) - MEAN) / (STD + 1e-3), rtol=1e-5)


def test_obs_normaliser_has_one_structure_with_and_without_a_log():
    """A run is loaded without its log."""
    one, other = (ObsNormaliser.of_log(spec) for spec in (PLAIN, LOGGED))
    assert jnp.asarray(one.moments[0].mean).shape == jnp.asarray(other.moments[0].mean).shape
    assert one.clip == other.clip


@pytest.mark.parametrize("spec", [PLAIN, LOGGED])
def test_obs_normaliser_disabled_is_the_identity(spec):
    np.testing.assert_array_equal(ObsNormaliser.of_log(spec, enabled=False)(FAR), FAR)


def test_obs_normaliser_of_running_statistics_clips_at_ten_deviations():
    np.testing.assert_allclose(ObsNormaliser.create(PLAIN.obs)(FAR), np.clip(FAR, -10, 10))


def rollouts(features=()):
    """Four rollouts of numbers whose mean and spread drift, as (numbers, last, mask). Half of the
    ends are followed by a masked row, as worlds reset, the others by the next episode at once; what
    stands in masked rows is far off."""
    rng = np.random.default_rng(5)
    last = rng.random((4 * STEPS, ENVS)) < 0.25
    last[STEPS - 1, 0], last[2 * STEPS - 1, 0] = True, False  # an end, and none, between rollouts
    mask = np.ones_like(last)
    mask[1:] = ~(last[:-1] & (rng.random(last[1:].shape) < 0.5))
    last &= mask
    drift = np.repeat([3.0, -1.0, 6.0, 2.0], STEPS).reshape(-1, 1, *(1 for _ in features))
    numbers = drift + (1.0 + abs(drift)) * rng.normal(size=(*last.shape, *features))
    far = mask.reshape(mask.shape + (1,) * len(features))
    numbers = np.where(far, numbers, 1e3).astype(np.float32)
    return [each.reshape(4, STEPS, *each.shape[1:]) for each in (numbers, last, mask)]


def discounted(reward, last, mask):
    """Every row's discounted return since its episode began, by the sum itself."""
    found = []
    for env in range(ENVS):
        start = 0
        for t in range(len(reward)):
            if mask[t, env]:
                powers = GAMMA ** np.arange(t - start, -1, -1)
                found.append(powers @ reward[start : t + 1, env])
            if last[t, env] or not mask[t, env]:
                start = t + 1
    return np.array(found)


def test_obs_normaliser_running_statistics_equal_numpy_on_unmasked_rows():
    """Merged rollout by rollout they equal NumPy's of everything at once."""
    obs, _, mask = rollouts(features=(2,))
    normaliser = ObsNormaliser.create(PLAIN.obs)
    for each in zip(obs, mask, strict=True):
        normaliser = normaliser.update(*map(jnp.asarray, each))
    counted = obs[mask].astype(np.float64)
    (moments,) = normaliser.moments
    np.testing.assert_allclose(moments.mean, counted.mean(0), rtol=1e-4)
    np.testing.assert_allclose(moments.variance, counted.var(0), rtol=1e-4)
    np.testing.assert_allclose(moments.count, mask.sum(), rtol=1e-5)
    wanted = (obs[0, :1] - counted.mean(0)) / counted.std(0)
    np.testing.assert_allclose(normaliser(jnp.asarray(obs[0, :1])), wanted, rtol=1e-3, atol=1e-4)


def test_reward_normaliser_divides_by_the_deviation_of_returns():
    """Each episode has a return of its own, that goes on from one rollout into the next."""
    rewards, lasts, masks = rollouts()
    normaliser = RewardNormaliser.create(ENVS)
    for each in zip(rewards, lasts, masks, strict=True):
        normaliser = normaliser.update(*map(jnp.asarray, each), GAMMA)
    rows = (each.reshape(-1, ENVS) for each in (rewards.astype(np.float64), lasts, masks))
    returns = discounted(*rows)
    np.testing.assert_allclose(normaliser.moments.mean, returns.mean(), rtol=1e-4)
    np.testing.assert_allclose(normaliser.moments.variance, returns.var(), rtol=1e-4)
    np.testing.assert_allclose(normaliser.moments.count, masks.sum(), rtol=1e-5)
    scaled = normaliser.scale(jnp.asarray([0.5, -2.0]))
    np.testing.assert_allclose(scaled, np.array([0.5, -2.0]) / returns.std(), rtol=1e-4)


def test_running_moments_ignore_a_fully_masked_rollout():
    """Where every world crashed at once no row counts."""
    batch = jnp.asarray([[100.0, 3.0], [106.0, 5.0]])
    seen = Moments.create((2,)).update(batch, jnp.ones(2, bool))
    again = seen.update(batch * 7.0, jnp.zeros(2, bool))
    np.testing.assert_array_equal(again.mean, seen.mean)
    np.testing.assert_array_equal(again.count, seen.count)
    np.testing.assert_allclose(again.variance, seen.variance, rtol=1e-6)


def batches_far_from_zero():
    """Three batches of eight columns with offsets up to 1e6, and a mask with gaps: what stands in
    masked rows is far off. The last column is constant."""
    rng = np.random.default_rng(3)
    offsets = np.array([0.0, -30.0, 1e3, 1e4, -1e5, 1e6, 1e6, 1e6])
    deviations = np.array([1.0, 0.1, 0.5, 1.0, 1.0, 1.0, 30.0, 0.0])
    rows = offsets + deviations * rng.normal(size=(3, 40, 2, 8))
    mask = rng.random((3, 40, 2)) < 0.7
    mask[0, 0, 0] = False
    return np.where(mask[..., None], rows, -7e5).astype(np.float32), mask


def assert_like_float64(normaliser, counted, rows):
    """Deviations to 1e-3 and normalised rows to 2e-3 of NumPy's in float64."""
    counted = counted.astype(np.float64)
    std = np.where(counted.std(0) > 0, counted.std(0), 1.0)
    (moments,) = normaliser.moments
    np.testing.assert_allclose(moments.deviation, std, rtol=1e-3)
    np.testing.assert_allclose(moments.mean, counted.mean(0), rtol=1e-6, atol=1e-4)
    wanted = np.clip((rows - counted.mean(0)) / std, -10, 10)
    # as constants, too: a policy's compiler may compute with them beforehand
    for each in (
        normaliser(jnp.asarray(rows)),
        jax.jit(lambda x: jnp.add(normaliser(x), 0.0))(rows),
    ):
        np.testing.assert_allclose(each, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("compiled", [False, True])
def test_running_statistics_far_from_zero_equal_float64(compiled):
    rows, mask = batches_far_from_zero()
    normaliser = ObsNormaliser.create(spaces.Box(-np.inf, np.inf, (8,), np.float32))
    for at in range(3):
        batch = jnp.asarray(rows[at]), jnp.asarray(mask[at])
        update = jax.jit(type(normaliser).update) if compiled else type(normaliser).update
        normaliser = update(normaliser, *batch)
        assert_like_float64(
            normaliser, rows[: at + 1][mask[: at + 1]], rows[0, :3, 0][mask[0, :3, 0]]
        )


def test_moments_of_episodes_far_from_zero_equal_float64():
    """As evolution strategies merge them: counted step by step, and joined after the episodes."""
    rows, mask = batches_far_from_zero()
    normaliser = ObsNormaliser.create(spaces.Box(-np.inf, np.inf, (8,), np.float32))
    count = jax.jit(ObsMoments.with_observation)
    for at in range(3):
        seen = ObsMoments.empty(jnp.zeros((1, 2, 8)), (1, 2))
        for time in range(rows.shape[1]):
            seen = count(seen, jnp.asarray(rows[at, time][None]), jnp.asarray(mask[at, time][None]))
        seen = jax.tree.map(lambda x: x[0], seen)
        normaliser = normaliser.joined(seen, jnp.ones(2, bool))
    assert_like_float64(normaliser, rows[mask], rows[0, :3, 0])


def test_reward_scale_far_from_zero_is_the_deviation_of_returns():
    """The rewards of one-step episodes are their returns; a bound above them changes nothing."""
    reward = (1e5 + np.random.default_rng(2).normal(size=(300, 1))).astype(np.float32)
    every = jnp.ones((300, 1), bool)
    std = reward.astype(np.float64).std()
    normaliser = RewardNormaliser.create(1).update(jnp.asarray(reward), every, every, GAMMA)
    np.testing.assert_allclose(normaliser.scale(jnp.asarray([2.0])), 2.0 / std, rtol=1e-3)
    scale = ReturnScale.create(1).update(jnp.asarray(reward), every, every, GAMMA)
    np.testing.assert_allclose(scale.divisor(1e6), std, rtol=1e-3)


def test_one_row_is_divided_by_one():
    one = jnp.asarray([[1e5, -2.0]])
    normaliser = ObsNormaliser.create(PLAIN.obs).update(one, jnp.ones(1, bool))
    np.testing.assert_allclose(normaliser(one + 3.0), [[3.0, 3.0]], atol=1e-6)
    reward = jnp.full((1, 1), 7.0)
    rewards = RewardNormaliser.create(1).update(reward, reward > 0, reward > 0, GAMMA)
    np.testing.assert_allclose(rewards.scale(reward), reward)


def test_moments_that_were_saved_without_a_remainder_load_with_zero(tmp_path):
    """As runs of before have them. Other leaves must all be there."""
    moments = Moments.create((2,)).update(FAR, jnp.ones(2, bool))
    old = {name: getattr(moments, name) for name in ("mean", "variance", "count")}
    checkpoint.save(tmp_path, 1, {"own": old, "best": [old]}, {})
    template = jax.eval_shape(lambda: {"own": moments, "best": [moments]})
    loaded, _ = checkpoint.load(tmp_path, template)
    np.testing.assert_array_equal(loaded["own"].normalise(FAR), moments.normalise(FAR))
    np.testing.assert_array_equal(loaded["best"][0].remainder, [0.0, 0.0])
    below, _ = checkpoint.load_subtree(tmp_path, "own", template["own"])
    np.testing.assert_array_equal(below.remainder, [0.0, 0.0])
    with pytest.raises(Mistake, match="has no leaf own/deviation"):
        checkpoint.load(tmp_path, {"own": old | {"deviation": FAR}, "best": [old]})


def test_of_log_keeps_what_float32_rounds_off_the_mean():
    """A dataset's mean is in float64."""
    mean, x = np.array([1e6 + 0.02, 3.0]), np.float32([[1e6 + 1.0, 3.5]])
    log = dataclasses.replace(LOGGED.log, obs_mean=mean, obs_std=np.ones(2, np.float32))
    found = ObsNormaliser.of_log(dataclasses.replace(PLAIN, log=log))(jnp.asarray(x))
    np.testing.assert_allclose(found, (x - mean) / 1.001, rtol=1e-5)


@pytest.mark.parametrize("known", [True, False])
def test_goals_of_a_log_share_the_moments_of_all_its_goals(known):
    rng = np.random.default_rng(0)
    goals = rng.normal((3.0, -2.0), (1.0, 5.0), (2, 400, 2))
    goals[1] = goals[1] * 3.0 + 7.0 if known else 0.0  # not known: those of the log are all 0
    box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    seen = dict(zip(("achieved_goal", "desired_goal"), goals, strict=True))
    seen["observation"] = rng.normal(size=(400, 2))
    moments = ({name: f(x, 0) for name, x in seen.items()} for f in (np.mean, np.std))
    log = Log(*moments, (0.0, 1.0), (0.0, 1.0), 1)
    spec = Spec(spaces.Dict(dict.fromkeys(seen, box)), spaces.Discrete(2), log=log)
    normal = ObsNormaliser.of_log(spec)(jax.tree.map(jnp.float32, seen))
    pool = goals.reshape(-1, 2) if known else goals[0]
    for name in ("achieved_goal", "desired_goal"):
        expected = (seen[name] - pool.mean(0)) / (pool.std(0) + 1e-3)
        np.testing.assert_allclose(normal[name], expected, rtol=1e-4, atol=1e-4)
    assert abs(np.mean(normal["observation"])) < 1e-5
