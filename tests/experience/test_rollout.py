"""A rollout's rows, its tally, and that no chance is used twice."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import random_keys
from sterling.envs.traced_world import TracedWorld
from sterling.experience.rollouts.guided_rollout import Expansion, GuidedRollout
from sterling.experience.rollouts.rollout import Rollout

SEEDS, ENVS, STEPS = (0, 4), 3, 8


class Throws:
    """Episodes of three steps, each paying 1, 2, 3; what is seen is the world's own chance.

    With ``bad`` the second step pays what is no number.
    """

    obs = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, bad=False):
        self.bad = bad

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jax.random.uniform(key, (1,))

    def step(self, state, action, key):
        now = state + 1
        reward = jnp.where(self.bad & (now == 2), jnp.nan, now.astype(jnp.float32))
        return now, jax.random.uniform(key, (1,)), reward, now >= 3, jnp.asarray(False)


class Dicey(eqx.Module):
    """Acts by chance alone, between ``low`` and ``low`` + 1, and says whether it was to explore."""

    low: float = 0.0

    def act(self, obs, keys, explore):
        action = jax.vmap(lambda key: jax.random.uniform(key, (ENVS, 1)))(keys)
        return self.low + action, {"explore": jnp.full((len(SEEDS), ENVS), explore)}

    def action_value(self, obs, action):
        return jnp.zeros(action.shape[:2])


def drawn(traced=True, bad=False, steps=STEPS):
    world = TracedWorld(Throws(bad), SEEDS, ENVS, strategy="map")
    world.traced = traced
    seeds = jnp.asarray(SEEDS, jnp.int32)
    source = Rollout.create(world, steps, random_keys.for_seeds(seeds, "start", 0))
    return source.live(Dicey(), random_keys.for_seeds(seeds, "draw", 0))


@pytest.mark.parametrize("traced", [True, False])
def test_rollout_explores_with_a_new_random_key_in_every_step(traced):
    _, record = drawn(traced)
    assert np.asarray(record.extras["explore"]).all()
    for seen in (record.obs, record.action):
        assert len(np.unique(seen)) == len(SEEDS) * STEPS * ENVS
    np.testing.assert_array_equal(record.next_obs[:, :-1], record.obs[:, 1:])


@pytest.mark.parametrize("traced", [True, False])
def test_rollout_rows_and_episode_tally_match_hand_values(traced):
    """Three steps, the row of the reset, three steps, the row of the reset."""
    source, record = drawn(traced)
    each = np.ones((len(SEEDS), 1, ENVS))
    mask = np.array([1, 1, 1, 0, 1, 1, 1, 0], bool)
    np.testing.assert_array_equal(record.mask, mask[None, :, None] * each)
    np.testing.assert_array_equal(record.last, np.tile([0, 0, 1, 0], 2)[None, :, None] * each)
    np.testing.assert_array_equal(record.reward, np.tile([1, 2, 3, 0], 2)[None, :, None] * each)
    np.testing.assert_array_equal(record.discount, np.tile([1, 1, 0, 1], 2)[None, :, None] * each)
    np.testing.assert_array_equal(source.tally.episodes, [2 * ENVS] * 2)
    np.testing.assert_array_equal(source.tally.returns, [2 * ENVS * 6.0] * 2)
    np.testing.assert_array_equal(source.tally.lengths, [2 * ENVS * 3.0] * 2)
    np.testing.assert_array_equal(source.tally.invalid, [0, 0])
    np.testing.assert_array_equal(source.reset_statistics().tally.episodes, [0, 0])


@pytest.mark.parametrize("traced", [True, False])
def test_rollout_ends_an_episode_at_non_finite_values_without_learning(traced):
    """Nothing of a broken episode counts, until the world has begun another."""
    source, record = drawn(traced, bad=True)
    mask = np.tile([1, 0, 0, 0], 2)[None, :, None] * np.ones((len(SEEDS), 1, ENVS))
    np.testing.assert_array_equal(record.mask, mask)
    np.testing.assert_array_equal(record.reward, mask)  # the first step pays 1
    assert np.isfinite(record.reward).all()
    np.testing.assert_array_equal(source.tally.episodes, [0, 0])
    np.testing.assert_array_equal(source.tally.invalid, [2 * ENVS] * 2)


def test_guided_rollout_gives_guide_learner_and_choice_separate_random_keys():
    """Were they one, whose turn it is would tell how large the action is."""
    world = TracedWorld(Throws(), SEEDS, ENVS, strategy="map")
    seeds = jnp.asarray(SEEDS, jnp.int32)
    rollout = Rollout.create(world, 200, random_keys.for_seeds(seeds, "start", 0))
    source = GuidedRollout(rollout, Dicey(10.0), Expansion(temperature=1.0))
    _, record = source.live(Dicey(), random_keys.for_seeds(seeds, "draw", 0))
    action = np.asarray(record.action).ravel()
    assert len(np.unique(action)) == action.size == 1200
    theirs, own = action[action >= 10.0] - 10.0, action[action < 10.0]
    assert abs(theirs.size / action.size - 0.5) < 0.06
    for one in (theirs, own):
        assert abs(one.mean() - 0.5) < 0.05  # 0.25 or 0.75 where the choice is by the same draw
