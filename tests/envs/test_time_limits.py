"""What agents are told of a world: its time limit, and whether two sides move in turn."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import RescaleObservation, TimeLimit

from sterling.data.dataset_metadata import Facts
from sterling.envs import world_wrappers
from sterling.envs.make_world import make
from sterling.envs.native.tictactoe import SelfPlay
from sterling.envs.traced_world import TracedWorld
from sterling.envs.trials import Trials
from sterling.experience.rollouts.self_play import OpponentGame
from sterling.problem.time_limit import positive_limit, time_limit, vector_time_limit
from sterling.types import Mistake

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Still:
    """A task of which only the declarations are read."""

    obs, action = BOX, spaces.Discrete(2)

    def __init__(self, max_episode_steps: Any = None):
        self.max_episode_steps = max_episode_steps

    def reset(self, key: Any) -> Any:
        return np.zeros(2, np.float32), np.zeros(2, np.float32)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        return state, state, np.float32(0.0), np.False_, np.False_


class Endless(gymnasium.Env[Any, Any]):
    """An environment that was not made by its name, so Gymnasium has no spec of it."""

    observation_space, action_space = BOX, spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("name", "options", "steps"),
    [
        ("classic:CartPole-v1", {}, 500),
        ("classic:CartPole-v1", {"max_episode_steps": 7}, 7),
        ("classic:CartPole-v1", {"max_episode_steps": 0}, None),
        ("gymnax:CartPole-v1", {}, 500),
        ("gymnax:CartPole-v1", {"max_episode_steps": 7}, 7),
        ("CartPole-v1", {}, 500),
        ("CartPole-v1", {"max_episode_steps": 7}, 7),
        ("gymnasium:Pendulum-v1", {"workers": 0}, 200),
        ("gymnasium:Pendulum-v1", {"workers": 0, "max_episode_steps": 7}, 7),
        ("gymnasium:Pendulum-v1", {"workers": 0, "max_episode_steps": -1}, None),
        ("CartPole-v1", {"stack": 2, "flatten": True}, 500),
        ("tictactoe:self", {}, None),
    ],
)
@pytest.mark.parametrize("purpose", ["train", "evaluate"])
def test_spec_has_the_time_limit_of_every_kind_of_world(
    name: str, options: dict[str, Any], steps: int | None, purpose: str
) -> None:
    world = make(name, (0,), 1, purpose=purpose, **options)
    world.close()
    assert world.spec.limit == steps


def test_users_environments_say_their_time_limits() -> None:
    limited = make(lambda: TimeLimit(Endless(), 9), (0,), 1, workers=0)
    unlimited = make(Endless, (0,), 1, workers=0)
    assert (limited.spec.limit, unlimited.spec.limit) == (9, None)


@pytest.mark.parametrize(
    ("own", "limit", "steps"), [(None, 0, None), (0, 0, None), (8, 0, 8), (8, 5, 5), (5, 8, 5)]
)
def test_tasks_own_max_episode_steps_is_told(own: Any, limit: int, steps: int | None) -> None:
    assert TracedWorld(Still(own), (0,), 1, limit=limit).spec.limit == steps


@pytest.mark.parametrize("own", [-1, 2.5, "8", True])
def test_impossible_max_episode_steps_of_a_task_is_refused(own: Any) -> None:
    with pytest.raises(Mistake, match=r"The task's max_episode_steps=.* Give a whole number"):
        TracedWorld(Still(own), (0,), 1)


def test_a_trial_has_no_time_limit_of_its_own() -> None:
    assert TracedWorld(Trials(Still(), 3, 5), (0,), 1).spec.limit is None


def test_wrappers_change_the_time_limit_that_is_told() -> None:
    def world(limit: int = 0) -> Any:
        return TracedWorld(Still(), (0,), 1, limit=limit)

    assert world_wrappers.ActionRepeat(world(10), 4).spec.limit == 3  # its last step is cut short
    assert world_wrappers.ActionRepeat(world(), 4).spec.limit is None
    limits = [world_wrappers.TimeLimit(world(each), 6).spec.limit for each in (0, 5, 9)]
    assert limits == [6, 5, 6]


def test_smallest_of_several_gymnasium_limits_counts() -> None:
    made = gymnasium.make("Pendulum-v1", max_episode_steps=50)
    assert time_limit(RescaleObservation(TimeLimit(made, 80), -1.0, 1.0)) == 50
    assert time_limit(TimeLimit(made, 20)) == 20
    assert time_limit(Endless()) is None


@pytest.mark.parametrize("said", [None, 0, -1, 2**31 - 1, True, "5", 5.0])
def test_a_stated_number_that_is_no_limit_is_none(said: Any) -> None:
    assert positive_limit(said) is None
    assert positive_limit(np.int64(5)) == 5


def test_vector_environments_say_their_time_limit() -> None:
    build = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=9)
    assert vector_time_limit(SyncVectorEnv([build])) == 9
    own = gymnasium.make_vec(
        "CartPole-v1", 1, vectorization_mode="vector_entry_point", max_episode_steps=9
    )
    assert vector_time_limit(own) == 9
    asked = AsyncVectorEnv.__new__(AsyncVectorEnv)  # without its processes
    asked.spec = gymnasium.spec("CartPole-v1")
    assert vector_time_limit(asked) == 500


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        (Facts("Pendulum-v1"), 200),
        (Facts("Pendulum-v1", options={"max_episode_steps": 300}), 300),
        (Facts("Pendulum-v1", options={"max_episode_steps": -1}), None),
        (Facts(options={"max_episode_steps": 300}), 300),
        (Facts("maze:4x4"), None),
        (Facts(), None),
    ],
)
def test_log_says_the_time_limit_of_its_environment(facts: Facts, steps: int | None) -> None:
    assert facts.limit == steps


def test_agents_are_told_of_two_sides_also_where_they_are_evaluated() -> None:
    for purpose, moves in (("train", True), ("evaluate", False)):
        world = TracedWorld(SelfPlay(), (0,), 1, purpose=purpose)
        assert world.spec.alternating
        assert world._alternating is moves  # the discount's sign: there the opponent is the world's
    for name in ("CartPole-v1", "tictactoe:perfect"):
        assert not make(name, (0,), 1).spec.alternating
    assert make("probe:turns", (0,), 1, stack=2).spec.alternating
    assert OpponentGame(make("tictactoe:self", (0,), 4), None, 1, 2).spec.alternating
