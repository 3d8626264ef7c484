"""A world that cannot be saved begins other episodes whenever its run goes on."""

from typing import ClassVar

import gymnasium
import numpy as np

from sterling.envs.compiled.envpool_env import env_seed
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.driver import Driver
from sterling.training.saving import checkpoint, run_folder


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
