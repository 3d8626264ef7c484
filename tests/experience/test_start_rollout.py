"""Choosers: episodes begin where they say, and they hear how the episodes went."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jaxtyping import Array

import sterling
from sterling import random_keys
from sterling.envs.episode_starts import Start
from sterling.envs.traced_world import TracedWorld
from sterling.experience.levels.start_rollout import StartRollout
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.saving import checkpoint
from sterling.types import Mistake

SEEDS, ENVS, STEPS = (0, 1), 3, 12


class Numbered:
    """A level is a number n; shown are it and the clock. Ends after 1 + n % 4 steps, which pay 1,
    2, 3..."""

    obs = spaces.Box(0.0, 1000.0, (2,), np.float32)
    action = spaces.Discrete(2)

    def level(self, key):
        return jax.random.randint(key, (), 500, 1000, jnp.int32)

    def begin(self, level, key):
        state = jnp.stack([level, jnp.zeros((), jnp.int32)])
        return state, state.astype(jnp.float32)

    def step(self, state, action, key):
        state = state + jnp.array([0, 1], jnp.int32)
        ended = state[1] > state[0] % 4
        reward = state[1].astype(jnp.float32)
        return state, state.astype(jnp.float32), reward, ended, jnp.zeros((), bool)


class Counting(eqx.Module):
    """Draws numbers below 100 by chance; keeps what it heard of the newest iteration."""

    starts: Array
    returns: Array
    ended: Array

    def draw(self, key, envs):
        return Start(level=jax.random.randint(key, (envs,), 0, 100, jnp.int32))

    def heard(self, rows, starts, returns):
        return Counting(starts.level, returns, rows.last & rows.mask)

    @classmethod
    def create(cls, key, task, config):
        zeros = jnp.zeros((STEPS, ENVS))
        return cls(zeros.astype(jnp.int32), zeros, zeros.astype(bool))


class Idle:
    """Always does the same."""

    def act(self, obs, keys, explore):
        return jnp.zeros(obs.shape[:2], jnp.int32), {}


def at(time):
    return random_keys.for_seeds(jnp.asarray(SEEDS, jnp.int32), "test", time)


def begun(make=Counting.create):
    world = TracedWorld(Numbered(), SEEDS, ENVS)
    return StartRollout.create(Rollout.create(world, STEPS, at(0)), at(1), make, None)


def test_episodes_begin_where_the_chooser_draws_and_it_hears_what_they_earned():
    live = jax.jit(lambda source, keys: source.live(Idle(), keys))
    source, before = begun(), None
    levels = set()
    for time in range(2, 5):
        source, rows = live(source, at(time))
        heard = source.chooser
        mask = np.asarray(rows.mask)
        level, clock = np.moveaxis(np.asarray(rows.obs), -1, 0).astype(int)
        np.testing.assert_array_equal(np.asarray(heard.starts)[mask], level[mask])
        done = clock + 1  # steps of the episode, also of one begun an iteration earlier
        np.testing.assert_array_equal(
            np.asarray(heard.returns)[mask], (done * (done + 1) // 2)[mask]
        )
        np.testing.assert_array_equal(heard.ended, mask & (done == 1 + level % 4))
        assert "begun_in" not in rows.extras
        levels |= set(level[mask])
        if before is not None:  # an episode goes on in the level in which it began
            goes_on = mask[:, 0] & ~before
            assert goes_on.any()
            np.testing.assert_array_equal((clock[:, 0] > 0)[mask[:, 0]], goes_on[mask[:, 0]])
        before = np.asarray(rows.last)[:, -1] | ~mask[:, -1]
    assert len(levels) > 20
    assert max(levels) < 100  # none that the task itself would draw


def test_a_chooser_draws_only_where_an_episode_begins():
    """In the other steps an env's next start stays what it was."""
    live = jax.jit(lambda source, keys: source.live(Idle(), keys))
    source, _ = live(begun().with_length(1), at(2))
    for time in range(3, 20):
        after, _ = live(source, at(time))
        kept = np.asarray(after.following.level == source.following.level)
        assert kept[~np.asarray(source.due)].all()
        source = after


def test_what_does_not_choose_starts_is_refused():
    with pytest.raises(Mistake, match=r"Give it draw\(key, envs\) and heard"):
        begun(lambda key, task, config: jnp.zeros(3))


LAYER_FILE = '''
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

import sterling
from sterling.envs.episode_starts import Start
from sterling.experience.levels.start_rollout import chosen_by
from sterling.types import config


class Best(eqx.Module):
    """Mostly the level of the best episode so far."""

    level: Array
    best: Array

    def draw(self, key, envs):
        chance = jax.random.uniform(key, (envs,))
        return Start(level=jnp.where(chance < 0.5, self.level, 2.0 * chance - 1.0))

    def heard(self, rows, starts, returns):
        found = jnp.where(rows.last & rows.mask, returns, -jnp.inf).ravel()
        best = jnp.argmax(found)
        better = found[best] > self.best
        level = jnp.where(better, starts.level.ravel()[best], self.level)
        return Best(level, jnp.maximum(self.best, found[best]))

    @classmethod
    def create(cls, key, task, config):
        first = jax.random.uniform(key, minval=config.least)
        return cls(first, jnp.asarray(-jnp.inf))


@config
class Config:
    """Its option."""

    least: float = 0.5  # of the first levels


LAYER = sterling.Layer(
    "best", "the best level", Config, rollouts=chosen_by(Best.create), begins=True
)
'''


def saved(run):
    """What a run's newest checkpoint holds of its source and agent."""
    folder = run.path / "checkpoints"
    return [checkpoint.read_arrays(folder, part)[1] for part in ("source/chooser", "agent/state")]


def test_a_chooser_of_a_file_resumes_as_if_never_stopped(tmp_path):
    (tmp_path / "best_level.py").write_text(LAYER_FILE)
    how = {
        "sources": f"{tmp_path}/best_level.py:least=0.75",
        "env_options": {"levels": 0},
        "seeds": 2,
    }
    small = {"length": 16, "minibatch": 32, "epochs": 1, "width": 8, "anneal": False, "envs": 4}
    how |= small | {"quiet": True, "evaluate_episodes": 0}
    short = sterling.train("ppo", "probe:levels", steps=128, out=tmp_path / "run", **how)
    assert np.isfinite(saved(short)[0]["best"]).all()
    whole = sterling.train("ppo", "probe:levels", steps=256, out=tmp_path / "whole", **how)
    resumed = sterling.resume(tmp_path / "run", steps=256, quiet=True)
    jax.tree.map(np.testing.assert_array_equal, saved(whole), saved(resumed))
    with pytest.raises(Mistake, match="each choose where episodes begin"):
        sterling.train(
            "ppo", "probe:levels", steps=128, **how | {"sources": how["sources"] + "+plr"}
        )
