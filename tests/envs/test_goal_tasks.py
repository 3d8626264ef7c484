"""OGBench's worlds with goals: five tasks, one for each copy, observed and scored; and what a
learner of goals says of a log that has none."""

import functools

import jax
import numpy as np
import pytest

import sterling
from sterling import envs
from sterling.data import Dataset
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.envs.goal_worlds.goal_tasks import seed_of_copy
from sterling.evaluation import evaluate_run
from sterling.types import Mistake

pytest.importorskip("ogbench")
NAME = "ogbench:pointmaze-medium-v0"
STARTS = [(0, 0), (0, 20), (8, 16), (16, 20), (20, 4)]  # of the tasks, in x and y
GOALS = [(20, 20), (20, 0), (4, 12), (0, 20), (0, 0)]
SMALL = {"width": 8, "depth": 1, "batch": 8, "updates": 2, "preset": False}


@functools.cache
def fixed_keys():
    return jax.random.split(jax.random.key(0), 2)


def test_every_copy_has_its_task_and_sees_its_goal():
    world = envs.make(NAME, (0, 1), 5, workers=0, goals=True)
    try:
        before = np.random.get_state()[1].copy()
        _, obs = world.reset(fixed_keys())
        np.testing.assert_array_equal(np.random.get_state()[1], before)
        for seed in (0, 1):
            assert np.abs(obs["observation"][seed] - STARTS).max() <= 1.0 + 1e-5
            assert np.abs(obs["desired_goal"][seed] - GOALS).max() <= 1.0 + 1e-5
        _, step = world.step(None, np.zeros((2, 5, 2), np.float32), fixed_keys())
        np.testing.assert_array_equal(step.obs["desired_goal"], obs["desired_goal"])
        np.testing.assert_array_equal(step.obs["achieved_goal"], step.obs["observation"])
        assert world.spec.channels["success"].within == (0.0, 1.0)
        assert not step.channels["success"].any()
    finally:
        world.close()
    assert [seed_of_copy(1234567, copy) % 5 for copy in range(7)] == [0, 1, 2, 3, 4, 0, 1]


@pytest.fixture(scope="module")
def maze(tmp_path_factory):
    home = tmp_path_factory.mktemp("maze") / "pointmaze-medium-navigate"
    return make_dataset(DatasetOrder(f"{home.name}-v0", "scripted", 1000), home).path


@pytest.mark.slow
def test_a_log_of_a_maze_is_learned_from_and_judged_by_task(maze, tmp_path):
    run = sterling.train(
        "hiql", data=maze, seeds=2, out=tmp_path / "run", evaluate_episodes=5,
        evaluate_limit=100, evaluate_every=2, log_every=2, env_options={"workers": 0}, **SMALL,
    )  # fmt: skip
    assert run.settings.env_options["goals"]
    tasks = [f"success.task{k}" for k in range(1, 6)]
    assert [name for name in run.result["final"] if "." in name] == tasks
    rate = [np.mean([run.result["final"][task]["per_seed"][s] for task in tasks]) for s in (0, 1)]
    np.testing.assert_allclose(run.result["final"]["success"]["per_seed"], rate)
    found = sterling.evaluate(tmp_path / "run", episodes=5, evaluate_limit=100)
    assert set(tasks) <= set(found.estimates)
    with pytest.raises(Mistake, match="multiple of 5"):
        evaluate_run.evaluate(run, episodes=7)


def test_episodes_that_leave_tasks_out_are_refused_before_training(maze):
    with pytest.raises(Mistake, match="Give a multiple of 5 episodes"):
        sterling.train("hiql", data=maze, evaluate_episodes=7, **SMALL)
    with pytest.raises(Mistake, match="draws its goals itself"):
        sterling.train("hiql", data=maze, hindsight="future", evaluate_episodes=5, **SMALL)


def test_a_log_without_goals_is_refused_in_one_line(tmp_path):
    seen = np.zeros((5, 3), np.float32)
    columns = {"observations": seen, "actions": np.zeros((5, 1), np.float32)}
    columns |= {"rewards": np.zeros(5), "terminals": np.arange(5) == 4}
    np.savez(tmp_path / "log.npz", **columns)
    data = Dataset(tmp_path / "log.npz").save(tmp_path / "log")
    with pytest.raises(Mistake, match=r"^hiql learns to reach goals.*achieved_goal.*docs/goals.md"):
        sterling.train("hiql", data=str(data), evaluate_episodes=0, **SMALL)
    with pytest.raises(Mistake, match="learns from datasets only"):
        sterling.train("gcivl", "flip:4", steps=100)
