"""Scripted collections: OGBench's, BabyAI's and Meta-World's."""

import sys

import numpy as np
import pytest

import sterling
from sterling import envs
from sterling.data import check
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.data_generation.scripts import ogbench_oracles
from sterling.types import Mistake


def scripted(name, size, tmp_path, **rest):
    return make_dataset(
        DatasetOrder(name, "scripted", size, **rest), tmp_path / f"{name}{len(rest)}"
    )


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    home = tmp_path_factory.mktemp("cube")
    return scripted("cube-single-play-singletask-task2-v0", 1000, home)


@pytest.mark.slow
def test_ogbench_cube_script_moves_the_cube_and_is_rewarded(cube):
    assert (cube.lengths.tolist(), cube.ended.tolist()) == ([1000], [False])
    one = cube[0]
    assert one.obs.shape == (1001, 28)
    assert one.obs.dtype == np.float32
    height = one.infos["qpos"][:, 16]
    assert height.max() > 0.06  # lifted
    assert height.min() < 0.03  # and put down
    assert (abs(one.action) <= 1).all()
    assert cube.facts.environment == "ogbench:cube-single-singletask-task2-v0"
    assert cube.facts.reference == (-200.0, 0.0)
    assert cube.facts.sources[0].format == "ogbench"  # ends in the middle are no mistakes
    assert not [finding for finding in check(cube) if finding.severity == "error"]


@pytest.mark.slow
def test_ogbench_script_rewards_equal_the_environments(cube):
    """By putting the environment into states of the log."""
    import gymnasium

    with ogbench_oracles.without_warnings():
        world = gymnasium.make(cube.facts.environment)
        world.reset(seed=0)
        inner, one = world.unwrapped, cube[0]
        target = inner._data.mocap_pos[0]
    near = np.linalg.norm(one.infos["qpos"][:-1, 14:17] - target, axis=1) <= 0.04
    np.testing.assert_array_equal(one.reward, near.astype(np.float32) - 1)
    np.testing.assert_array_equal(one.discount, 1 - near.astype(np.float32))
    for at in (0, 500, int(near.argmax())):
        inner.set_state(one.infos["qpos"][at], one.infos["qvel"][at])
        inner.post_step()
        reward, ended = world.step(one.action[at])[1:3]
        assert (reward, ended) == (one.reward[at], one.discount[at] == 0)
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["puzzle-3x3-noisy-v0", "scene-play-singletask-v0"])
def test_ogbench_puzzle_and_scene_scripts_press_buttons(name, tmp_path):
    data = scripted(name, 1000, tmp_path)
    buttons = data[0].infos["button_states"]
    assert len(np.unique(buttons, axis=0)) > 1  # something was pressed
    assert data.facts.environment.endswith("3x3-v0" if "3x3" in name else "scene-singletask-v0")
    assert (data[0].reward.min() < 0) == ("singletask" in name)


@pytest.mark.slow
def test_ogbench_pointmaze_script_is_independent_of_workers(tmp_path):
    name = "pointmaze-medium-stitch-v0"
    one = scripted(name, 500, tmp_path)
    two = scripted(name, 500, tmp_path, workers=2)
    assert one.lengths.tolist() == [200, 200, 100]
    assert one.hash == two.hash != scripted(name, 500, tmp_path, workers=1, seed=1).hash
    for each in one[:2]:
        assert 4 < np.linalg.norm(each.obs[-1] - each.obs[0]) < 24  # four cells of size 4


@pytest.mark.slow
def test_ogbench_singletask_environments_are_registered(cube):
    world = envs.make("ogbench:cube-single-play-singletask-task2-v0", (0,), 1, workers=0)
    assert world.spec.obs.shape == (28,)
    world.close()
    assert envs.registry.find_backend("ogbench:puzzle-4x4-noisy-v0")[1] == "ogbench:puzzle-4x4-v0"


def test_babyais_bot_solves_its_levels(tmp_path):
    name = "BabyAI-GoToRedBall-v0"
    data = scripted(name, 120, tmp_path)
    assert data.rows == 120
    assert (data.returns[:-1] > 0.5).all()
    assert data.ended[:-1].all()
    mission = bytes(data[0].obs["mission"][0]).rstrip(b"\0").decode()
    assert mission == "go to the red ball"
    world = envs.make(name, (0,), 1)
    assert world.spec.obs == data.obs_space
    world.close()
    assert scripted(name, 120, tmp_path, workers=2).hash == data.hash


@pytest.fixture(scope="module")
def reach(tmp_path_factory):
    order = DatasetOrder("MetaWorld/Reach-v3", "scripted", 700, seed=3)
    return make_dataset(order, tmp_path_factory.mktemp("reach") / "data")


@pytest.mark.slow
def test_metaworld_script_reaches_goals_independently_of_workers(reach, tmp_path):
    assert reach.lengths.tolist() == [500, 200]
    assert not reach.ended.any()
    assert reach.returns[0] > 3000
    goals = [one.obs[0, -3:] for one in reach]
    assert (goals[0] != goals[1]).any()
    for one, goal in zip(reach, goals, strict=True):
        done = one.infos["success"]
        assert (done[0], done[150]) == (False, True)
        assert np.linalg.norm(one.obs[150, :3] - goal) < 0.05
    assert not check(reach)
    again = make_dataset(
        DatasetOrder("MetaWorld/Reach-v3", "scripted", 700, seed=3, workers=2), tmp_path / "two"
    )
    assert again.hash == reach.hash


def test_metaworld_dataset_trains_with_its_environment_options(reach):
    """With the goal to be seen, which is not what EnvPool gives unasked."""
    how = {"data": reach.path, "updates": 2, "evaluate_episodes": 1, "batch": 8}
    run = sterling.train("bc", **how)
    assert run.settings.env_options == {"partially_observable": False}
    hidden = sterling.train("bc", env_options={"partially_observable": True}, **how)
    assert hidden.settings.env_options == {"partially_observable": True}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "cube-singel-play-v0",
            "Unknown scripted collection 'cube-singel-play-v0'; did you mean cube-single-play-v0",
        ),
        ("cube-single-navigate-v0", "Unknown scripted collection"),
        ("BabyAI-GoToRedBal-v0", "did you mean BabyAI-GoToRedBall-v0"),
        ("BabyAI-KeyInBox-v0", "bot cannot solve BabyAI-KeyInBox-v0"),
        ("MetaWorld/Reech-v3", "did you mean MetaWorld/Reach-v3"),
        ("MetaWorld/DialTurn-v3", "does not solve MetaWorld/DialTurn-v3"),
        ("cub-single-v0", "There is no script for 'cub-single-v0'"),
    ],
)
def test_unknown_scripted_collections_are_refused(name, said, tmp_path):
    with pytest.raises(Mistake, match=said):
        scripted(name, 10, tmp_path)


@pytest.mark.parametrize(
    ("package", "name"), [("ogbench", "cube-single-play-v0"), ("minigrid", "BabyAI-GoToObj-v0")]
)
def test_scripted_collection_without_its_package_names_the_pip_extra(
    package, name, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Mistake, match=rf'pip install "sterling-rl\[{package}\]"'):
        scripted(name, 10, tmp_path)


def test_missing_metaworld_policies_name_the_pip_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "metaworld.policies", None)
    with pytest.raises(Mistake, match='pip install --no-deps "metaworld>='):
        scripted("MetaWorld/Reach-v3", 10, tmp_path)
