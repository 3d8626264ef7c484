"""SIGTERM is answered with code 75 and the command to go on, wherever in a run it comes."""

import os
import signal
import subprocess
import sys
import time

import pytest

WORLD = """
import time
import gymnasium
import numpy
import sterling

steps = 0


class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return numpy.zeros(2, numpy.float32), {{}}

    def step(self, action):
        global steps
        steps, self.clock = steps + 1, self.clock + 1
        if steps > {slow}:
            print("slow", flush=True)
            time.sleep(0.05)
        return numpy.zeros(2, numpy.float32), 1.0, False, self.clock == 40, {{}}


fields = {{"warmup": {warmup}, "capacity": 2000, "batch": 8, "width": 8}}
sterling.train(
    "dqn", Slow, steps={warmup} + 40, envs=1, out={out!r}, log_every=8,
    env_options={{"workers": 0}}, evaluate_episodes=60, **fields,
)
"""


@pytest.mark.parametrize(
    ("stage", "slow", "warmup", "said"),
    [
        ("the warm-up", 10, 1_000, "stopped before anything was learned; give the same command"),
        ("the final evaluation", 60, 20, "saved; go on with: sterling resume"),
    ],
)
def test_a_signal_is_answered_in(stage, slow, warmup, said, tmp_path):
    program = WORLD.format(slow=slow, warmup=warmup, out=str(tmp_path / "run"))
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "slow\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert said in rest
    assert (tmp_path / "run" / "config.json").exists() == (stage != "the warm-up")
