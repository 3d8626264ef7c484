"""Environments from outside: Tasks, and factories of Gymnasium environments, Tasks and Worlds."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array
from gymnasium import spaces

from sterling import envs, random_keys
from sterling.envs.registry import find_backend
from sterling.envs.traced_world import TracedWorld
from sterling.lookup import user_imports
from sterling.problem.channels import Channel
from sterling.training.config.user_code_words import environment_reference
from sterling.types import Mistake


def inner(world):
    while hasattr(world, "world"):
        world = world.world
    return world


def steps(world, count):
    """Rewards, ends and masks of an agent that always goes right."""
    seeds = jnp.zeros(world.seeds, jnp.int32)
    state, _ = world.reset(random_keys.for_seeds(seeds, "reset", 0))
    rows = []
    for time in range(count):
        action = np.ones((world.seeds, world.spec.envs), np.int32)
        state, step = world.step(
            state, jnp.asarray(action), random_keys.for_seeds(seeds, "step", time)
        )
        rows.append((float(step.reward[0, 0]), bool(step.last[0, 0]), bool(step.mask[0, 0])))
    return rows


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [("make", "task", {}), ("Corridor", "task", {}), ("world", "world", {}),
     ("undeclared", "factory", {"workers": 0})],
)  # fmt: skip
def test_user_environment_is_equal_as_file_factory_and_object(name, kind, options, written):
    word = f"{written}/maze.py:{name}"
    assert find_backend(word) == (kind, word)
    world = envs.make(word, (0, 1), 2, strategy="map", **options)
    assert isinstance(inner(world), TracedWorld)
    row = [(0.0, False, True), (0.0, False, True), (1.0, True, True), (0.0, False, False)]
    assert steps(world, 5) == [*row, row[0]]
    thing = user_imports.load(word)
    again = envs.make(thing, (0, 1), 2, strategy="map", **options)
    assert steps(again, 5) == [*row, row[0]]


def test_user_task_object_takes_a_time_limit(written):
    task = user_imports.load(f"{written}/maze.py:task")
    world = envs.make(task, (0,), 1, max_episode_steps=2)
    assert steps(world, 2) == [(0.0, False, True), (0.0, True, True)]
    assert envs.make(f"{written}/maze.py:make", (0,), 1, length=7).task.length == 7


def test_user_gymnasium_factory_is_built_in_worker_processes(written):
    word = f"{written}/maze.py:gym"
    assert find_backend(word)[0] == "factory"
    world = envs.make(word, (0,), 2, workers=1)
    assert inner(world).name == "maze:gym"
    state, obs = world.reset(random_keys.for_seeds(jnp.zeros(1, jnp.int32), "reset", 0))
    assert obs.shape == (1, 2, 4)
    _, step = world.step(
        state, np.zeros((1, 2), np.int32), random_keys.for_seeds(jnp.zeros(1, jnp.int32), "step", 0)
    )
    assert step.mask.all()
    world.close()


def test_environment_reference_of_a_user_object(written, monkeypatch):
    monkeypatch.chdir(written)
    path = f"{written}/maze.py"
    maze = user_imports.load(path)
    assert (
        environment_reference(maze.make) == environment_reference("maze.py:make") == f"{path}:make"
    )
    assert user_imports.display_name(f"{path}:make") == "maze:make"
    local = maze.Corridor(9)
    assert environment_reference(local) is local
    assert environment_reference("CartPole-v1") == "CartPole-v1"


@pytest.mark.parametrize(
    ("word", "options", "said"),
    [
        (
            "{}/maze.py",
            {},
            r"maze.py names no environment. Write .*maze.py:NAME; .* Corr",
        ),
        (
            "{}/maze.py:number",
            {},
            "maze:number is 5, which is no environment. Give a Task",
        ),
        ("{}/maze.py:wrong", {}, "maze:wrong returned 5, which is no World. Add spec, seeds"),
        ("{}/maze.py:make", {"size": 3}, "maze:make has no option 'size'; it has length, max_ep"),
        ("{}/maze.py:world", {"size": 3}, "maze:world has no option 'size'"),
        ("{}/maze.py:task", {"length": 3}, "maze:task has no option 'length'; it has max_ep"),
        ("{}/maze.py:undeclared", {"length": 3}, r"Set its options \(length\) inside the function"),
        (
            "{}/maze.py:gym",
            {"max_episode_steps": 3, "workers": 0},
            r"Set its options \(max_episode_steps\) inside the function",
        ),
        (
            "{}/maze.py:broken",
            {"workers": 0},
            "maze:broken cannot be built.*RuntimeError: no licence",
        ),
        ("no_such:make", {}, "there is no module no_such"),
    ],
)
def test_invalid_user_environments_are_refused_in_one_line(word, options, said, written):
    with pytest.raises(Exception, match=said) as found:
        envs.make(word.format(written), (0,), 1, **options)
    assert type(found.value).__name__ in ("Mistake", "WorldFailed")
    assert "\n" not in str(found.value)


class Bad:
    """A Task with one thing wrong."""

    obs = spaces.Box(0.0, 1.0, (1,), np.float32)
    action = spaces.Discrete(2)

    def __init__(self, **wrong):
        self.wrong = wrong

    def reset(self, key):
        return {"place": jnp.zeros((), jnp.int32)}, jnp.zeros(1)

    def step(self, state, action, key):
        made = {"state": state, "obs": jnp.zeros(1), "reward": jnp.zeros(()),
                "terminated": jnp.zeros((), bool), "truncated": jnp.zeros((), bool)}  # fmt: skip
        return tuple({**made, **self.wrong}.values())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"state": constant_array(0.0)},
            "the state of step has a different structure from that of Bad",
        ),
        (
            {"state": {"place": constant_array(0.0)}},
            r"state of step\['place'\] is float32\[\], but that",
        ),
        (
            {"obs": constant_array([0.0, 0.0])},
            r"observation of step is float32\[2\], but that of Bad.reset is",
        ),
        ({"reward": constant_array([0.0])}, "step must return one number as reward"),
        ({"terminated": constant_array(0.0)}, "must return a bool as terminated; got float32"),
        ({"more": 1}, r"step\(state, action, key\) must return state, obs, reward, terminated and"),
    ],
)
def test_user_task_with_inconsistent_shapes_is_refused(wrong, said):
    with pytest.raises(Mistake, match=said):
        envs.make(Bad(**wrong), (0,), 1)


def test_user_task_reports_channels_and_has_an_evaluation_task():
    task = Bad(terminated=jnp.ones((), bool), truncated=jnp.zeros((), bool), more={"cost": 2.0})
    task.channels = {"cost": Channel(better=-1)}
    task.evaluation_task = Bad(terminated=jnp.ones((), bool))
    key = random_keys.for_seeds(jnp.zeros(1, jnp.int32), "reset", 0)
    for purpose, reported in (("train", {"cost": 2.0}), ("evaluate", {})):
        world = envs.make(task, (0,), 1, purpose=purpose)
        state, _ = world.reset(key)
        _, step = world.step(state, jnp.zeros((1, 1), jnp.int32), key)
        assert {name: float(each[0, 0]) for name, each in step.channels.items()} == reported


def test_user_task_that_raises_is_named_with_its_line():
    bad = Bad()
    bad.reset = lambda key: jnp.zeros(2) + jnp.zeros(3)
    with pytest.raises(
        Mistake, match=r"Bad: reset\(key\) cannot be traced.*\(test_worlds.py:\d+\)"
    ):
        envs.make(bad, (0,), 1)


def test_environment_instance_is_refused_and_a_factory_suggested():
    with pytest.raises(
        Mistake, match=r"an environment, not a factory of them. Write `lambda: \w+\(\.\.\.\)`"
    ):
        envs.make(gymnasium.make("CartPole-v1"), (0,), 1)
    world = envs.make("probe:both", (0,), 1)
    with pytest.raises(Mistake, match="is an environment, not a factory"):
        envs.make(world, (0,), 1)
    assert jax.tree.leaves(world.reset(random_keys.for_seeds(jnp.zeros(1, jnp.int32), "reset", 0)))
