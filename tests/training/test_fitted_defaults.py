"""Defaults that fit a small budget, and presets by the kind of world; what is set by hand stays."""

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.training.config.resolve_settings import resolve_settings
from sterling.types import Mistake

MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]], np.int32)


class Grid:
    """Five by five cells, from one corner to the other: each step costs 1, and at most 50."""

    def __init__(self, shape=(2,)):
        self.obs, self.action = spaces.Box(0.0, 1.0, shape, np.float32), spaces.Discrete(4)

    def reset(self, key):
        place = jnp.zeros(2, jnp.int32)
        return (place, jnp.int32(0)), self._see(place)

    def step(self, state, action, key):
        place, time = state
        place = jnp.clip(place + jnp.asarray(MOVES)[action], 0, 4)
        there = (place == 4).all()
        late = ~there & (time + 1 >= 50)
        return (place, time + 1), self._see(place), -jnp.ones(()), there, late

    def _see(self, place):
        seen = place.astype(jnp.float32) / 4
        return jnp.broadcast_to(seen.sum(), self.obs.shape) if self.obs.shape != (2,) else seen


def config_of(algorithm, world, steps, preset=True, **fields):
    return resolve_settings(algorithm, world, steps=steps, preset=preset, fields=fields).config


def test_small_vector_observations_select_their_preset(capsys):
    config = config_of("dqn", Grid(), 6_000)
    taken = (config.lr, config.batch, config.warmup, config.target_period, config.width)
    assert taken == (0.00063, 128, 0, 250, 256)
    assert "dqn: settings for small vectors (RL Baselines3 Zoo" in capsys.readouterr().err
    assert config_of("dqn", Grid(), 6_000, lr=0.1, warmup=8).lr == 0.1
    assert "lr=" not in capsys.readouterr().err
    assert config_of("dqn", Grid(), 6_000, lr=0.1, warmup=8).warmup == 8
    for names in ("CartPole-v1", "MountainCar-v0"):  # presets of their own
        assert config_of("dqn", names, 50_000).lr in (0.001, 0.004)
    for shape in ((9, 9, 1), (200,)):  # a picture, and many numbers
        assert config_of("dqn", Grid(shape), 200_000).lr == 1e-4
    capsys.readouterr()
    config = config_of("ppo", Grid((9, 9, 1)), 200_000, lr=0.1)
    assert (config.lr, config.clip, config.epochs, config.width) == (0.1, 0.1, 4, 512)
    assert "ppo: settings for pictures (RL Baselines3 Zoo" in capsys.readouterr().err
    assert config_of("ppo", Grid(), 6_000).lr == 3e-4  # whose defaults are for such worlds
    assert config_of("dqn", Grid(), 200_000, preset=False).lr == 1e-4


def test_default_warmup_shrinks_to_a_tenth_of_a_small_budget(capsys):
    wide = Grid((200,))
    config = config_of("dqn", wide, 6_000)
    assert (config.warmup, config.target_period) == (600, 27)
    said = capsys.readouterr().err
    assert "dqn: warmup=600 (default 50,000) and target_period=27 (default 10,000)" in said
    assert "to fit 6,000 steps" in said
    assert config_of("sac", "probe:both-continuous", 5_000).warmup == 500
    assert config_of("td3", "probe:both-continuous", 5_000).warmup == 500
    assert config_of("dqn", wide, 6_000, target_period=40).target_period == 40


def test_default_or_explicit_warmup_is_kept_where_it_fits(capsys):
    wide = Grid((200,))
    assert config_of("dqn", wide, 100_000).warmup == 50_000
    assert config_of("sac", "probe:both-continuous", 20_000).warmup == 10_000
    assert (
        config_of("sac", "Pendulum-v1", 1_500).warmup
        == config_of("sac", "Pendulum-v1", 9_999).warmup
    )
    assert config_of("dqn", wide, 6_000, warmup=5_000).warmup == 5_000
    assert capsys.readouterr().err == ""
    for given in ({"preset": False}, {"warmup": 50_000}):
        with pytest.raises(Mistake, match="below one iteration of dqn: 50000 warm-up steps"):
            config_of("dqn", wide, 6_000, **given)


def test_environment_that_cannot_be_built_gets_no_preset():
    def broken():
        raise ValueError("no such device")

    assert config_of("dqn", broken, 200_000).lr == 1e-4


@pytest.mark.slow
def test_dqn_solves_a_gridworld_with_default_settings():
    run = sterling.train("dqn", Grid(), steps=6_000, seeds=5, evaluate_episodes=2)
    assert run.result["final"]["return"]["per_seed"] == [-8.0] * 5
