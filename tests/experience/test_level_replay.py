"""Prioritised level replay as a source: rows say their level, levels are chosen by their scores."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import envs, random_keys
from sterling.envs.traced_world import TracedWorld
from sterling.experience.levels.level_replay import LevelReplay
from sterling.experience.levels.level_rollout import LevelRollout
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.config.run_options import Guidance
from sterling.types import Feed, Mistake, Record, Signals

SEEDS, ENVS, LEVELS = (0, 1), 3, 8


class Numbered:
    """A level is a number; shown are it and the clock. Ends after 1 to 3 steps by chance."""

    obs = spaces.Box(0.0, 1000.0, (2,), np.float32)
    action = spaces.Discrete(2)

    def level(self, key):
        return jax.random.randint(key, (), 0, 1000, jnp.int32)

    def begin(self, level, key):
        state = jnp.stack([level, jnp.zeros((), jnp.int32)])
        return state, state.astype(jnp.float32)

    def step(self, state, action, key):
        state = state + jnp.array([0, 1], jnp.int32)
        ended = (state[1] == 3) | jax.random.bernoulli(key, 0.3)
        return state, state.astype(jnp.float32), jnp.ones(()), ended, jnp.zeros((), bool)


class Failing(Numbered):
    """Often answers NaN, and goes on."""

    def step(self, state, action, key):
        moved, obs, _, _, cut = super().step(state, action, key)
        reward = jnp.where(jax.random.bernoulli(key, 0.4), jnp.nan, 1.0)
        return moved, obs, reward, moved[1] == 4, cut


class Idle:
    """Always does the same."""

    def act(self, obs, keys, explore):
        return jnp.zeros(obs.shape[:2], jnp.int32), {}


def at(time):
    return random_keys.for_seeds(jnp.asarray(SEEDS, jnp.int32), "test", time)


@functools.cache
def made(task=Numbered):
    world = TracedWorld(task(), SEEDS, ENVS, levels=LEVELS)
    return LevelRollout.create(Rollout.create(world, 20, at(0)), at(1))


@jax.jit
def live(source, time):
    return source.live(Idle(), at(time))


def shown(source, obs):
    """The numbers in the book of the levels that observations show."""
    book = np.asarray(source.world.book)
    return np.argmax(np.asarray(obs)[..., 0, None] == book, -1)


@pytest.mark.parametrize("task", [Numbered, Failing])
def test_level_rollout_rows_name_the_level_they_were_collected_in(task):
    source = made(task)
    for time in range(2, 5):
        source, rows = live(source, time)
        level = np.asarray(rows.extras["level"])
        # an episode's first observation is the one after the masked row
        np.testing.assert_array_equal(level, shown(source, rows.next_obs))
        follows = np.asarray(rows.mask)
        np.testing.assert_array_equal(level[follows], shown(source, rows.obs)[follows])
        assert rows.mask.shape == (2, 20, 3)
    assert len(np.unique(level)) == LEVELS


def test_level_rollout_draws_next_levels_by_weight_and_counts_episodes():
    source = made()
    edges = jnp.stack([(jnp.arange(LEVELS) >= 5).astype(jnp.float32)] * 2)
    source, rows = live(source, 2)
    begun = np.asarray(~rows.mask).sum((1, 2))
    np.testing.assert_array_equal(source.count, begun)
    edged = LevelRollout(source.source, source.told, edges, source.last, source.count)
    _, rows = live(edged, 3)
    level, masked = np.asarray(rows.extras["level"]), ~np.asarray(rows.mask)
    later = np.cumsum(masked, 1) >= 2  # the next one may have been drawn before
    assert (level[later] == 5).all()
    assert (level[~later] != 5).any()


def test_level_rollout_last_count_of_a_level_is_its_newest_episode():
    source = made()
    source, rows = live(source, 2)
    for seed in range(2):
        number, last = 0, np.zeros(LEVELS, int)
        for time, env in np.ndindex(20, ENVS):
            if not rows.mask[seed, time, env]:
                number += 1
                last[int(rows.extras["level"][seed, time, env])] = number
        np.testing.assert_array_equal(source.last[seed], last)


def test_level_replay_plays_new_levels_then_those_of_largest_error():
    """First levels that were not seen yet, then the one whose errors are the largest."""
    feed = Feed("fresh")

    @jax.jit
    def round_of(source, time):
        source, draws = source.collect(Idle(), at(time))
        batch = draws.presample(feed, at(time))
        error = jnp.where(batch.extras["level"] == 3, 2.0, -0.1)

        def heed(heard, batch, error):
            return draws.heed(feed, heard, Signals({}, {"advantage": error}), batch)

        return source.with_feedback(jax.vmap(heed)(draws.feedback, batch, error)), batch

    source = LevelReplay.create(made(), 0.05, 0.0)
    for time in range(8):
        source, _ = round_of(source, time)
    assert (source.source.last > 0).all()
    expected = np.where(np.arange(LEVELS) == 3, 2.0, 0.1)
    np.testing.assert_allclose(source.scores, [expected] * 2, rtol=1e-6)
    _, rows = round_of(source, 8)
    later = np.cumsum(~np.asarray(rows.mask), 1) >= 2
    assert (np.asarray(rows.extras["level"])[later] == 3).mean() > 0.95


def test_level_replay_scores_move_slowly_for_replayed_rows():
    source = LevelReplay.create(made())
    _, draws = source.collect(Idle(), at(2))
    zeros = jnp.zeros(4)
    level = jnp.array([1, 1, 2, 3], jnp.int32)
    batch = Record(zeros, zeros, zeros, zeros, zeros, zeros > 0, jnp.array([1, 1, 1, 0]) > 0,
                   {"level": level})  # fmt: skip
    error = Signals({}, {"td_error": jnp.array([1.0, -3.0, 5.0, 9.0])})
    _, scores = draws.heed(Feed(batch=4), (None, jnp.zeros(LEVELS)), error, batch)
    np.testing.assert_allclose(scores[:4], [0.0, 0.19 * 2.0, 0.1 * 5.0, 0.0], rtol=1e-6)
    with pytest.raises(Mistake, match="leave out sources"):
        draws.heed(Feed(batch=4), (None, jnp.zeros(LEVELS)), Signals({}, {}), batch)


@pytest.mark.parametrize(
    ("name", "environment", "options", "said"),
    [
        ("ppo", "maze:3x3", {"sources": "prl"}, "Unknown sources='prl'; did you mean plr"),
        ("ppo", "maze:3x3", {"sources": "plr:0,1"}, "field temperature must be"),
        (
            "ppo",
            "maze:3x3",
            {"sources": "plr:x"},
            "write plr:0.1,0.1 or plr:temp",
        ),
        ("ppo", "CartPole-v1", {"sources": "plr"}, "such as --env levels=200"),
        ("ppo", "maze:3x3", {"sources": "plr", "env_options": {"levels": 0}}, "--env levels=200"),
        ("ppo", "envpool:CartPole-v1", {"sources": "plr"}, "cannot begin an episode in a given"),
    ],
)
def test_level_replay_refuses_invalid_settings(name, environment, options, said):
    with pytest.raises(Mistake, match=said):
        sterling.train(name, environment, steps=4_000, envs=1, evaluate_episodes=0, **options)


def test_level_replay_refuses_to_combine_with_a_guide(tmp_path):
    guide = Guidance(str(tmp_path), steps=3)
    with pytest.raises(Mistake, match="cannot be combined with guide"):
        sterling.train("dqn", "maze:3x3", steps=90_000, sources="plr", guide=guide)


def test_level_replay_works_with_trials():
    world = envs.make("trials:2:maze:3x3", SEEDS, ENVS, levels=5)
    source = LevelRollout.create(Rollout.create(world, 40, at(0)), at(1))

    class Wander:
        def act(self, obs, keys, explore):
            draw = jax.vmap(lambda key: jax.random.randint(key, (ENVS,), 0, 4, jnp.int32))
            return draw(keys), {}

    source, rows = source.live(Wander(), at(2))
    assert int(rows.extras["level"].max()) == 4
