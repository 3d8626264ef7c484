"""A world that cannot be saved begins other episodes whenever its run goes on."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest

import sterling
from sterling.envs.compiled.envpool_env import env_seed
from sterling.training.assembly.environment_options import (
    with_environment_options,
    write_environment_options,
)
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.driver import Driver
from sterling.training.phases.phase_options import parse_phases
from sterling.training.saving import checkpoint, run_folder
from sterling.types import Mistake


class Told(gymnasium.Env):
    """Notes the seeds that it is given."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    seeds: ClassVar[list[int]] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        if seed is not None:
            self.seeds.append(seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.clock += 1
        return np.zeros(1, np.float32), 1.0, False, self.clock == 10, {}


def test_resumed_run_seeds_the_host_environment_anew(tmp_path):
    fields = {"warmup": 0, "capacity": 200, "width": 8, "batch": 8, "collect": 20}
    options = {"env_options": {"workers": 0}, "evaluate_episodes": 0}
    settings = resolve_settings("dqn", Told, steps=400, seeds=1, envs=1, fields=fields, **options)
    begun = None
    for rounds in (0, 1, 2):
        driver = Driver(settings, tmp_path, (), begun)
        assert int(driver.run.iteration) == rounds
        driver.run = driver._interval.go(driver.run, 1)
        driver.save()
        driver.close()
        begun = checkpoint.newest_valid(run_folder.checkpoints_path(tmp_path))
    wanted = [env_seed(0, 0, purpose) for purpose in ("train", "train/from-1", "train/from-2")]
    assert [seed for seed in Told.seeds if seed in wanted] == wanted
    assert len(set(wanted)) == 3


class Flaky(Told):
    """Raises in every ``period``-th step of all copies; observes ``size`` numbers."""

    count = 0

    def __init__(self, period=0, size=1):
        self.period = period
        self.observation_space = gymnasium.spaces.Box(-1, 1, (size,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        Flaky.count += 1
        if self.period and Flaky.count % self.period == 0:
            raise RuntimeError("lost connection")
        obs = np.zeros(self.observation_space.shape, np.float32)
        return obs, *super().step(action)[1:]


def flaky_settings(**more):
    options = {"workers": 0, "period": 15}
    return resolve_settings(
        "dqn", Flaky, steps=400, env_options=options, preset=False, fields={"warmup": 0}, **more
    )


def test_resume_replaces_options_of_the_environment_and_keeps_the_others(tmp_path):
    settings = flaky_settings()
    run_folder.write_config(tmp_path, settings.to_json())
    changed = with_environment_options(tmp_path, settings, {"max_failures": 1_000})
    write_environment_options(tmp_path, changed)
    wanted = {"workers": 0, "period": 15, "max_failures": 1_000}
    assert run_folder.read_config(tmp_path)["env_options"] == wanted


def test_resume_gives_options_to_the_environment_of_the_phase_that_goes_on(tmp_path):
    settings = flaky_settings(phases=parse_phases("steps=400 env.period=0"))
    changed = with_environment_options(tmp_path, settings, {"period": 7})
    assert (changed.env_options["period"], changed.phases[0].env_options) == (7, {"period": 0})


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"size": 3}, r"size would change what the agents of this run observe.*\(3,\)"),
        ({"max_failures": 0}, "max_failures=0 is not possible"),
        ({"seeds": 3}, "'seeds' cannot be an option of an environment"),
    ],
)
def test_resume_refuses_options_that_change_the_problem_before_anything_is_written(
    tmp_path, given, line
):
    settings = flaky_settings()
    with pytest.raises(Mistake, match=line):
        with_environment_options(tmp_path, settings, given)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_run_ended_by_failures_goes_on_with_the_command_that_it_prints(tmp_path, monkeypatch):
    monkeypatch.setattr(Flaky, "count", 0)
    path, fields = tmp_path / "run", {"width": 8, "batch": 8, "warmup": 20, "collect": 5}
    with pytest.raises(sterling.WorldFailed, match=r"resume \S+run --env max_failures=1000$"):
        sterling.train(
            "dqn", Flaky, steps=400, out=path, env={"workers": 0, "period": 15}, **fields,
            preset=False, evaluate_episodes=0,
        )  # fmt: skip
    run = sterling.resume(path, environment=Flaky, env={"max_failures": 1_000})
    assert run.result["steps"] == 400
    with pytest.raises(Mistake, match="is finished"):
        sterling.resume(path, environment=Flaky, env={"max_failures": 5})
