"""Bounds of returns: they are found by name, undone by options, and true of the environments."""

import fnmatch
import json
from pathlib import Path

import numpy as np
import pytest
from every_case import every

from sterling import references
from sterling.envs import registry
from sterling.envs.env_options import HOST_OPTIONS
from sterling.envs.registry import SEARCH_ORDER
from sterling.references import return_bounds as bounds
from sterling.references.return_bounds import return_bounds
from sterling.statistics.scores.score_bounds import parse_bounds

FILE = Path(references.__file__).parent / "return_bounds.json"
ENTRIES = json.loads(FILE.read_text())["bounds"]


@every("entry", ENTRIES, lambda entry: entry["names"][0])
def test_every_return_bounds_entry_has_bounds_and_a_reason(entry):
    assert parse_bounds(entry["within"]) != (None, None)
    assert len(entry["why"]) > 20


def test_every_return_bounds_name_is_a_registered_environment():
    known = [name for names in registry.names().values() for name in names]
    for pattern in (pattern for entry in ENTRIES for pattern in entry["names"]):
        assert any(fnmatch.fnmatchcase(name, pattern) for name in known), pattern


def test_return_bounds_backends_and_harmless_options_match_the_registry():
    assert bounds.BACKENDS == SEARCH_ORDER
    assert set(HOST_OPTIONS) - {"reward_weights"} <= set(bounds.HARMLESS_OPTIONS)


@pytest.mark.parametrize(
    ("environment", "within"),
    [
        ("CartPole-v1", (0, 500)),
        ("gymnax:CartPole-v1", (0, 500)),
        ("CartPole-v0", (0, 200)),
        ("Acrobot-v1", (-500, 0)),
        ("MountainCar-v0", (-200, 0)),
        ("Pong-v5", (-21, 21)),
        ("Breakout-MinAtar", (0, None)),
        ("FrozenLake-v1", (0, 1)),
        ("MiniGrid-Empty-8x8-v0", (0, 1)),
        ("MiniGrid-Dynamic-Obstacles-5x5-v0", (-1, 1)),
        ("WalkerWalk-v1", (0, 1000)),
        ("HalfCheetah-v5", None),
        ("LunarLander-v3", None),
        ("my_package:CartPole-v1", None),  # somebody else's
        (None, None),
    ],
)
def test_return_bounds_are_found_by_environment_name(environment, within):
    assert return_bounds(environment) == within


def test_return_bounds_are_dropped_with_env_options_that_may_change_them():
    assert return_bounds("CartPole-v1", {"max_episode_steps": 1000}) is None
    assert return_bounds("CartPole-v1", {"max_episode_steps": None, "workers": 2}) == (0, 500)
    assert return_bounds("Pong-v5", {"repeat_action_probability": 0.25}) == (-21, 21)


def test_user_environment_declares_its_return_bounds():
    def build():
        raise AssertionError("not built to be asked")

    assert return_bounds(build) is None
    build.return_within = (0, 10)
    assert return_bounds(build) == (0, 10)


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0"])
def test_random_episode_returns_lie_within_the_return_bounds(environment):
    low, high = return_bounds(environment)
    import gymnasium

    env, rng = gymnasium.make(environment), np.random.default_rng(0)
    for episode in range(5):
        env.reset(seed=episode)
        env.action_space.seed(int(rng.integers(1000)))
        total, over = 0.0, False
        while not over:
            _, reward, ended, cut, _ = env.step(env.action_space.sample())
            total, over = total + float(reward), ended or cut
        assert low <= total <= high
