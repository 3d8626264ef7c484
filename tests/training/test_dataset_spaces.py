"""A log that does not say its spaces is learned from in the world's; one that does must agree."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import algorithms
from sterling.data import Dataset
from sterling.data.dataset_metadata import Facts
from sterling.data.file_conversion import convert_files
from sterling.data.space_json import space_to_json
from sterling.problem.agent_axis import Agents
from sterling.training.assembly import run_dataset
from sterling.training.config.resolve_settings import resolve_settings
from sterling.types import Mistake, Spec

WORLD = "Pendulum-v1"  # torques of -2 to 2
TORQUE, ROWS = 0.5, 200
SPACE, TEAM = spaces.Box(0.0, 1.0, (2,)), Agents(("one", "other"))  # of levels
SMALL = {"width": 16, "batch": 32, "lr": 1e-2, "evaluate_episodes": 0}


def write(path, action, width=3, reward=1.0):
    """A flat file, in the environment's own units."""
    random = np.random.default_rng(0)
    obs = random.normal(size=(ROWS, width)).astype(np.float32)
    ends = np.arange(ROWS) % 50 == 49
    np.savez(path, observations=obs, actions=action, rewards=np.full(ROWS, reward), terminals=ends)
    return path


@pytest.fixture(name="constant")
def _constant(tmp_path):
    return write(tmp_path / "constant.npz", np.full((ROWS, 1), TORQUE, np.float32))


class Pendulum:
    """As much of a world as a log is compared with; nobody lives in it."""

    seeds, traced, exact = 1, False, False

    def __init__(self, bound):
        self.action_space = spaces.Box(-bound, bound, (1,), np.float32)
        obs = spaces.Box(-9.0, 9.0, (3,), np.float32)
        self.spec = Spec(obs=obs, action=spaces.Box(-1.0, 1.0, (1,), np.float32))

    def reset(self, keys):
        raise AssertionError("it was lived in")

    def step(self, state, action, keys):
        raise AssertionError("it was lived in")

    def close(self):
        raise AssertionError("it was lived in")


@pytest.fixture(name="world")
def _world():
    return Pendulum(2.0)


def asked(path, **how):
    return resolve_settings("bc", WORLD, data=run_dataset.make_log_settings(path, **how), updates=4)


def learned(settings):
    return np.asarray(run_dataset.read_log_in_world(settings.data).transitions().action)


def test_bc_on_an_unscaled_log_acts_in_the_environments_units(constant, tmp_path):
    run = sterling.train("bc", WORLD, data=constant, updates=300, **SMALL)
    np.testing.assert_allclose(run.policy(np.ones(3, np.float32)), TORQUE, atol=0.2)
    np.testing.assert_array_equal(learned(run.settings), TORQUE / 2.0)
    own = convert_files([constant], tmp_path / "own", environment=WORLD)
    np.testing.assert_array_equal(own.transitions().action, TORQUE / 2.0)


@pytest.mark.slow
def test_dataset_actions_are_scaled_in_both_phases_and_on_resume(constant, tmp_path):
    """Also where they go on in the second phase, and another log was opened in between."""
    fields = {**SMALL, "updates": 4, "steps": 12, "warmup": 4, "envs": 4}
    run = sterling.train("td3bc", WORLD, data=constant, out=tmp_path / "run", **fields)
    np.testing.assert_array_equal(learned(run.settings), TORQUE / 2.0)
    run_dataset.read_log_in_world(
        run_dataset.make_log_settings(write(tmp_path / "b.npz", np.zeros((ROWS, 1))))
    )
    np.testing.assert_array_equal(learned(run.settings), TORQUE / 2.0)
    again = sterling.resume(tmp_path / "run", steps=20)
    np.testing.assert_array_equal(learned(again.settings), TORQUE / 2.0)


def test_dataset_actions_are_scaled_once_the_environment_is_known(constant, world):
    settings = asked(constant)
    np.testing.assert_array_equal(learned(settings), TORQUE)
    spec, _ = run_dataset.spec_and_summary(settings, world)
    np.testing.assert_array_equal(learned(settings), TORQUE / 2.0)
    assert spec.obs == world.spec.obs
    run_dataset.spec_and_summary(
        settings, None
    )  # a later run without a world has the log's own again
    np.testing.assert_array_equal(learned(settings), TORQUE)
    run_dataset.spec_and_summary(settings, Pendulum(4.0))
    np.testing.assert_array_equal(learned(settings), TORQUE / 4.0)


def test_dataset_float_actions_become_the_environments_discrete_choices(tmp_path):
    kept = (np.arange(ROWS) % 2).astype(np.float32)[:, None]
    path = write(tmp_path / "cart.npz", kept, 4)
    run = sterling.train("bc", "CartPole-v1", data=path, updates=4, **SMALL)
    assert run.policy(np.zeros(4, np.float32)) in (0, 1)
    np.testing.assert_array_equal(learned(run.settings), np.arange(ROWS) % 2)


def test_fit_to_world_scales_dataset_actions_for_off_policy_evaluation(constant, world):
    judged = run_dataset.fit_to_world(Dataset(constant), world, WORLD)
    np.testing.assert_array_equal(judged.transitions().action, TORQUE / 2.0)
    own = {"obs": spaces.Box(-9.0, 9.0, (3,)), "action": world.action_space}
    unlived = run_dataset.SpacesWorld({name: space_to_json(space) for name, space in own.items()})
    again = run_dataset.fit_to_world(
        Dataset(constant), unlived, "none"
    )  # of a run that had no world
    np.testing.assert_array_equal(again.transitions().action, TORQUE / 2.0)


def test_learner_from_a_log_is_told_the_worlds_time_limit_or_else_the_logs(constant, tmp_path):
    guessed = Dataset(constant)
    facts = Facts(options={"max_episode_steps": 60})
    data = Dataset.from_block(
        next(guessed.blocks()), guessed.obs_space, guessed.action_space, facts
    )
    settings = asked(data.save(tmp_path / "log"))
    world = Pendulum(1.0)
    world.spec = dataclasses.replace(
        world.spec, limit=200, alternating=True, level_space=SPACE, agents=TEAM
    )
    told = run_dataset.spec_and_summary(settings, world)[0]
    assert (told.limit, told.alternating) == (200, True)
    assert (told.level_space, told.agents) == (SPACE, TEAM)
    assert run_dataset.spec_and_summary(settings, None)[0].limit == 60
    filled = run_dataset.fill_from_log(dataclasses.replace(settings, environment=""))
    assert run_dataset.SpacesWorld(filled.spaces).spec.limit == 60  # where the log no longer exists
    old = {name: filled.spaces[name] for name in ("obs", "action")}
    assert run_dataset.SpacesWorld(old).spec.limit is None


@pytest.mark.parametrize(
    ("action", "width", "words"),
    [
        (np.full((ROWS, 1), 3.0), 3, r"The dataset has the action \[3\.\], which lies outside the"),
        (np.zeros((ROWS, 2)), 3, r"The file's action space is Box.*, but the environment's is Box"),
        (np.zeros((ROWS, 1)), 4, r"The file's obs space is Box.*Name the environment that"),
        (np.zeros(ROWS, int), 3, r"The file's action space is Discrete\(1\), but .* is Box"),
    ],
)
def test_dataset_that_does_not_fit_the_environment_is_refused(
    tmp_path, world, action, width, words
):
    settings = asked(write(tmp_path / "other.npz", action, width))
    with pytest.raises(Mistake, match=words) as error:
        run_dataset.spec_and_summary(settings, world)
    assert "\n" not in str(error.value)


def test_dataset_actions_outside_the_bounds_are_accepted_unchecked(tmp_path, world):
    settings = asked(write(tmp_path / "far.npz", np.full((ROWS, 1), 3.0)), unchecked=True)
    run_dataset.spec_and_summary(settings, world)
    np.testing.assert_array_equal(learned(settings), 1.5)


@pytest.mark.parametrize(("bound", "fits"), [(2.0, True), (2.00001, True), (1.0, False)])
def test_dataset_action_bounds_must_equal_the_environments(tmp_path, constant, world, bound, fits):
    guessed = Dataset(constant)
    own = spaces.Box(-bound, bound, (1,), np.float32)
    said = Dataset.from_block(next(guessed.blocks()), guessed.obs_space, own)
    settings = asked(said.save(tmp_path / "said"))
    if fits:
        run_dataset.spec_and_summary(settings, world)
        np.testing.assert_allclose(learned(settings), TORQUE / 2.0, rtol=1e-4)
        return
    with pytest.raises(Mistake, match=r"by -1 and 1, but those of Pendulum-v1 by -2 and 2. Nam"):
        run_dataset.spec_and_summary(settings, world)
    convert_files([tmp_path / "said"], tmp_path / "mended", environment=WORLD)  # as it advises
    settings = asked(tmp_path / "mended")
    run_dataset.spec_and_summary(settings, world)
    np.testing.assert_array_equal(learned(settings), TORQUE / 2.0)


def test_bc_without_an_environment_acts_in_the_datasets_units(tmp_path):
    random = np.random.default_rng(0)
    action = random.normal(30.0, 5.0, (ROWS, 2)).astype(np.float32)
    action[:, 1] = -7.0
    path = write(tmp_path / "robot.npz", action)
    run = sterling.train("bc", data=path, updates=200, out=tmp_path / "run", **SMALL)
    for policy in (run.policy, sterling.load(tmp_path / "run").policy):
        arm, still = policy(np.zeros(3))
        assert abs(arm - 30.0) < 5.0
        assert abs(still + 7.0) < 0.01


def test_dataset_rewards_are_unclipped_without_a_clipping_environment(tmp_path, world):
    path = write(tmp_path / "points.npz", np.full((ROWS, 1), TORQUE, np.float32), reward=-2.5)
    settings = asked(path)
    run_dataset.spec_and_summary(settings, world)
    found = run_dataset.read_log_in_world(settings.data).transitions().reward
    np.testing.assert_array_equal(np.asarray(found), -2.5)


def test_returns_of_a_log_with_clipped_rewards_are_refused(tmp_path, world, monkeypatch):
    """They would be sums of signs; those of a replay are of whole rewards."""
    settings = asked(write(tmp_path / "points.npz", np.full((ROWS, 1), TORQUE, np.float32)))
    monkeypatch.setattr(run_dataset, "_clips_rewards", lambda settings: True)
    learner: Any = algorithms.find(settings.algorithm)
    keep = dataclasses.replace(learner.needs(settings.config), keep=("episode/return",))
    monkeypatch.setattr(learner, "needs", lambda config: keep)
    with pytest.raises(Mistake, match=r"log's rewards are clipped as the world's.*reward_clip"):
        run_dataset.spec_and_summary(settings, world)


@pytest.mark.parametrize(
    ("world", "options", "clips"),
    [
        ("Pong-v5", {}, True),
        ("Pong-v5", {"reward_clip": False}, False),
        ("HalfCheetah-v4", {}, False),  # EnvPool's as well
        ("gymnasium:Pendulum-v1", {}, False),
    ],
)
def test_reward_clipping_environments_are_recognised(world, options, clips):
    settings = resolve_settings("ppo", world, steps=100_000, env_options=options)
    assert run_dataset._clips_rewards(settings) == clips
